//! The thread that owns MPI, the one order of all operations, and the handle that others hold.
//!
//! The owner initialises and finalises MPI and does what was queued with [`Comm::start`]; what [`Comm::run`] waits for is done
//! by the caller itself, which has the data in its cache and needs nobody to wake up. MPI_THREAD_SERIALIZED suffices: every
//! operation draws a ticket, and tickets are served one by one. While idle the owner neither spins nor polls MPI.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use base::{environment, screen};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::die::{self, Phase, die, on_mpi_thread};
use super::error::Error;
use super::library::check_family;
use super::sys::{self, current, within};
use super::turns::Turns;
use super::world::{World, WorldInfo};
use super::{known_answer, launcher};

/// Handle to MPI and to the thread that owns it. Clones are handles to the same.
///
/// Dropping all handles ends the thread but not MPI, which would wait for the other ranks: a run that goes well ends with
/// [`Comm::finish`], one that does not with [`die()`].
#[derive(Clone)]
pub struct Comm {
    queue: Sender<Work>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Who this rank is, or why MPI is not there.
    info: OnceLock<Result<WorldInfo, Error>>,
    /// Taken by the operation whose ticket is served.
    world: Mutex<Option<World>>,
    turns: Turns,
    progress: Mutex<Progress>,
}

/// The last operation that was taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// How many operations it has taken up. Equal on all ranks as long as they keep step.
    pub number: u64,
    /// The name that [`Comm::start`] was given.
    pub name: &'static str,
    /// When it was taken up, or, once done, when it ended.
    pub since: Instant,
    /// Whether it is still under way.
    pub running: bool,
}

/// The answer to an operation, to be waited for.
#[must_use = "an operation's error is seen only by waiting for it"]
pub struct Pending<R> {
    what: &'static str,
    answer: Receiver<Result<R, Error>>,
}

enum Work {
    Run(u64, &'static str, Job),
    Finish(u64, Sender<Result<(), Error>>),
}

type Job = Box<dyn FnOnce(Result<&World, Error>) + Send>;

/// The operation before the first that is queued.
const START: &str = "start of MPI";
/// The operation after the last.
const FINISH: &str = "end of MPI";

impl Comm {
    /// Spawns the thread that owns MPI and returns at once; MPI initialises there in the background (0.2 to 0.4 s).
    ///
    /// How it went is seen from [`Comm::world`]. MPI libraries write to the process's environment while they
    /// initialise: read what you need of it before, and set nothing until [`Comm::world`] has answered.
    pub fn launch() -> Self {
        static LAUNCHED: AtomicBool = AtomicBool::new(false);
        let (queue, work) = unbounded();
        let shared = Arc::new(Shared::new());
        let comm = Self { queue, shared: Arc::clone(&shared) };
        if LAUNCHED.swap(true, Ordering::SeqCst) {
            shared.opened(Err(Error::Twice));
            return comm;
        }
        environment::remember();
        die::enter(Phase::Starting);
        let owner = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("mpi".into()).spawn(move || {
            die::own_mpi();
            ends_all_on_panic(&owner, || own_mpi(&work, &owner));
        });
        if let Err(error) = spawned {
            die::enter(Phase::Ended);
            shared.opened(Err(Error::Spawn(error.to_string())));
        }
        comm
    }

    /// Who and where this rank is. Waits until MPI is initialised and its known-answer test has passed.
    ///
    /// # Errors
    /// What initialisation or the test failed with.
    pub fn world(&self) -> Result<&WorldInfo, Error> {
        self.shared.info.wait().as_ref().map_err(Error::clone)
    }

    /// Who this rank is, if that is known by now.
    pub fn known(&self) -> Option<&WorldInfo> {
        self.shared.info.get()?.as_ref().ok()
    }

    /// Queues `f` for the MPI thread under the name `what`; operations are done one by one, in the order of the calls.
    ///
    /// All ranks must start or run the same collectives in the same order. An error that `f` returns comes out of
    /// [`Pending::wait`]; a panic in `f` ends all ranks.
    pub fn start<R: Send + 'static>(
        &self,
        what: &'static str,
        f: impl FnOnce(&World) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        let (sender, answer) = bounded(1);
        let shared = Arc::clone(&self.shared);
        let job: Job = Box::new(move |world| {
            let result = world.and_then(f);
            shared.ended();
            // nobody waits any more if the receiver is gone
            let _ = sender.send(result);
        });
        // refused work is dropped, and with it the sender, which `wait` reports
        self.shared.turns.draw(|ticket| self.queue.send(Work::Run(ticket, what, job)).is_ok());
        Pending { what, answer }
    }

    /// Does `f` under the name `what` on the calling thread, once everything that was started before is done.
    ///
    /// The same rules as for [`Comm::start`] hold.
    ///
    /// # Errors
    /// What `f` returned, or [`Error::Finished`] if it came after the end of MPI.
    pub fn run<R>(&self, what: &'static str, f: impl FnOnce(&World) -> Result<R, Error>) -> Result<R, Error> {
        if on_mpi_thread() || current().is_some() {
            return Err(Error::Inside { what });
        }
        let Some(ticket) = self.shared.turns.draw(|_| true) else { return Err(Error::Finished { what }) };
        ends_all_on_panic(&self.shared, || {
            self.shared.serve(ticket, what, |world| {
                let result = world.and_then(f);
                self.shared.ended();
                result
            })
        })
    }

    /// The operation that was taken up last. Cheap, from any thread, also while MPI blocks.
    pub fn progress(&self) -> Progress {
        *self.shared.progress()
    }

    /// Finalises MPI after all queued work; collective. The last thing before a normal end: after it, operations fail
    /// with [`Error::Finished`].
    pub fn finish(&self) -> Result<(), Error> {
        let (sender, answer) = bounded(1);
        self.shared.turns.draw_last(|ticket| self.queue.send(Work::Finish(ticket, sender)).is_ok());
        Pending { what: FINISH, answer }.wait()
    }
}

impl Shared {
    fn new() -> Self {
        let progress = Progress { number: 0, name: START, since: Instant::now(), running: true };
        Self {
            info: OnceLock::new(),
            world: Mutex::new(None),
            // ticket 0 is the start of MPI
            turns: Turns::new(),
            progress: Mutex::new(progress),
        }
    }

    /// Does an operation when its turn has come.
    fn serve<R>(&self, ticket: u64, name: &'static str, f: impl FnOnce(Result<&World, Error>) -> R) -> R {
        self.turns.wait(ticket);
        self.begun(name);
        let result = within(name, || {
            let world = lock(&self.world);
            f(world.as_ref().ok_or_else(|| self.absent(name)))
        });
        self.turns.next();
        result
    }

    /// Why there is no world.
    fn absent(&self, what: &'static str) -> Error {
        self.info.get().and_then(|info| info.as_ref().err().cloned()).unwrap_or(Error::Finished { what })
    }

    /// The start of MPI is over: notes how it went and lets the first operation go.
    fn opened(&self, opened: Result<(World, WorldInfo), Error>) {
        self.ended();
        let info = opened.map(|(world, info)| {
            *lock(&self.world) = Some(world);
            info
        });
        // set once: by the thread, or where there is none
        let _ = self.info.set(info);
        self.turns.next();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Notes that the next operation is taken up.
    fn begun(&self, name: &'static str) {
        let mut progress = self.progress();
        *progress = Progress { number: progress.number + 1, name, since: Instant::now(), running: true };
    }

    /// Notes the end of the operation under way, before its result is known.
    fn ended(&self) {
        let mut progress = self.progress();
        progress.running = false;
        progress.since = Instant::now();
    }
}

impl<R> Pending<R> {
    /// Blocks until the operation is done.
    ///
    /// # Errors
    /// What the operation returned, or [`Error::Finished`] if it came after the end of MPI.
    pub fn wait(self) -> Result<R, Error> {
        let what = self.what;
        if on_mpi_thread() || current().is_some() {
            return Err(Error::Inside { what });
        }
        self.answer.recv().unwrap_or(Err(Error::Finished { what }))
    }
}

/// A lock whose holder cannot have panicked without the end of this process.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whatever panics in the middle of an operation leaves the other ranks waiting in a collective.
fn ends_all_on_panic<R>(shared: &Shared, f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            let name = shared.progress().name;
            let text = loaders::panic_text(panic.as_ref());
            die(1, &format!("panic in the MPI operation \"{name}\": {text}"))
        }
    }
}

/// The thread's life: initialise, work off the queue, finalise.
fn own_mpi(work: &Receiver<Work>, shared: &Shared) {
    if let Some(text) = launcher::foresee(launcher::variable, &sys::library_version()) {
        screen::say(&format!("warning: {text}"));
    }
    let opened = within(START, || {
        check_family()?;
        let (world, info) = World::open()?;
        die::set_rank(info.rank, info.size);
        known_answer::check(&world)?;
        Ok((world, info))
    });
    // the phase comes before the answer: whoever has seen the world may die at once
    die::enter(Phase::Running);
    shared.opened(opened);
    while let Ok(next) = work.recv() {
        match next {
            Work::Run(ticket, name, job) => shared.serve(ticket, name, job),
            Work::Finish(ticket, answer) => {
                shared.turns.wait(ticket);
                shared.begun(FINISH);
                let world = lock(&shared.world).take().ok_or_else(|| shared.absent(FINISH));
                let closed = within(FINISH, || world.and_then(World::close));
                die::enter(Phase::Ended);
                shared.turns.next();
                // nobody waits any more if the receiver is gone
                let _ = answer.send(closed);
                return;
            }
        }
    }
}

// Values of any type between ranks, as JSON, for everything that happens rarely. Gradients, sums and weights are sent as numbers. JSON has
// no NaN and no infinity: do not send a float this way if it may be one.

impl Comm {
    /// Gathers a value of each rank on rank 0, in order of rank; others get `None`. Collective.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: &T,
    ) -> Result<Option<Vec<T>>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| world.gather(&own))?;
        all.map(|all| all.iter().map(|bytes| decode(what, bytes)).collect()).transpose()
    }

    /// Gathers a value of each rank on all ranks, in order of rank. Collective.
    pub fn gather_all<T: Serialize + DeserializeOwned>(&self, what: &'static str, value: &T) -> Result<Vec<T>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| [b"[", &*all.join(&b','), b"]"].concat());
            world.broadcast(&mut all, 0)?;
            Ok(all)
        })?;
        decode(what, &all)
    }

    /// Whether `yes` is true on all ranks. Collective.
    pub fn all(&self, what: &'static str, yes: bool) -> Result<bool, Error> {
        Ok(self.gather_all(what, &yes)?.into_iter().all(|yes| yes))
    }

    /// Gives rank 0's value to all ranks; those of other ranks are not looked at and may be `None`. Collective.
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: Option<&T>,
    ) -> Result<T, Error> {
        let mut bytes = value.map_or(Ok(Vec::new()), |value| encode(what, value))?;
        self.run(what, |world| world.broadcast(&mut bytes, 0))?;
        decode(what, &bytes)
    }
}

fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|e| Error::Unsendable { what, why: e.to_string() })
}

fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::Value { what, why: e.to_string() })
}
