//! The thread that owns MPI, the order of all operations, and [`Comm`], the handle for other threads.
//!
//! The owner initialises and finalises MPI and runs the work queued with [`Comm::start`]. Work passed to [`Comm::run`]
//! runs on the calling thread, which has the data in its cache and need not be woken up. MPI_THREAD_SERIALIZED is
//! sufficient: every operation draws a ticket, and tickets are served one at a time. An idle owner neither spins nor
//! polls MPI.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use base::{environment, lock, screen};
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

/// A handle to MPI and to the thread that owns it. All clones refer to the same MPI.
///
/// Dropping all handles ends the thread but does not finalise MPI, because that would wait for the other ranks. A
/// successful run must end with [`Comm::finish`], a failed run with [`die()`].
#[derive(Clone)]
pub struct Comm {
    queue: Sender<Work>,
    shared: Arc<Shared>,
}

struct Shared {
    /// This rank's identity, or the error that kept MPI from starting.
    info: OnceLock<Result<WorldInfo, Error>>,
    /// All ranks, for collectives. The operation that has the turn locks it. `None` before MPI is initialised and after
    /// it is finalised.
    world: Mutex<Option<World>>,
    turns: Turns,
    progress: Mutex<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of operations begun so far. Equal on all ranks as long as they run the same operations.
    pub number: u64,
    /// The name that was passed to [`Comm::start`] or [`Comm::run`].
    pub name: &'static str,
    /// When the operation began or, if it is done, when it ended.
    pub since: Instant,
    /// True if the operation has not ended yet.
    pub running: bool,
}

/// A queued operation's result, which can be waited for.
#[must_use = "an operation's error is seen only by waiting for it"]
pub struct Pending<R> {
    what: &'static str,
    answer: Receiver<Result<R, Error>>,
}

enum Work {
    Run(u64, Job),
    Finish(u64, Sender<Result<(), Error>>),
}

/// Runs an operation when its turn comes. The number is its ticket.
type Job = Box<dyn FnOnce(&Shared, u64) + Send>;

/// Name of the operation that precedes all queued ones.
const START: &str = "start of MPI";
/// Name of the last operation.
const FINISH: &str = "end of MPI";

impl Comm {
    /// Spawns the thread that owns MPI and returns at once. The thread initialises MPI in the background, which takes
    /// 0.2 to 0.4 s.
    ///
    /// [`Comm::world`] returns the result. MPI libraries write to the process environment while they initialise. Do not
    /// read or set environment variables until [`Comm::world`] has returned.
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

    /// Waits until MPI is initialised and its known-answer test has passed, then returns this rank's identity.
    ///
    /// # Errors
    ///
    /// Returns the error if the initialisation or the test failed.
    pub fn world(&self) -> Result<&WorldInfo, Error> {
        self.shared.info.wait().as_ref().map_err(Error::clone)
    }

    /// Returns this rank's identity if MPI is already initialised and tested. Does not wait.
    pub fn known(&self) -> Option<&WorldInfo> {
        self.shared.info.get()?.as_ref().ok()
    }

    /// Queues `f` for the MPI thread under the name `what`. Operations run one at a time, in the order of the calls.
    ///
    /// All ranks must start or run the same collectives in the same order. [`Pending::wait`] returns the error of `f`.
    /// A panic in `f` ends all ranks.
    pub fn start<R: Send + 'static>(
        &self,
        what: &'static str,
        f: impl FnOnce(&World) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        self.start_after(what, || (), move |(), world| f(world))
    }

    /// Like [`Comm::start`], but first calls `before`, which may wait for a device and does not use MPI. Until it
    /// returns, this rank has not begun the operation, so a watchdog on another rank sees for which rank it waits.
    pub fn start_after<T, R: Send + 'static>(
        &self,
        what: &'static str,
        before: impl FnOnce() -> T + Send + 'static,
        f: impl FnOnce(T, &World) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        let (sender, answer) = bounded(1);
        let job: Job = Box::new(move |shared, ticket| {
            shared.serve(ticket, what, before, |ready, world| {
                let result = world.and_then(|world| f(ready, world));
                shared.ended();
                // Sending fails only if the receiver was dropped. Then no thread waits for the result.
                let _ = sender.send(result);
            });
        });
        // If the queue refuses the work, the work and its sender are dropped, and `wait` returns an error.
        self.shared.turns.draw(|ticket| self.queue.send(Work::Run(ticket, job)).is_ok());
        Pending { what, answer }
    }

    /// Runs `f` under the name `what` on the calling thread, after all operations that were started earlier.
    ///
    /// The same rules as for [`Comm::start`] apply.
    ///
    /// # Errors
    ///
    /// Returns the error from `f`, the error that kept MPI from starting, [`Error::Finished`] after the end of MPI, or
    /// [`Error::Inside`] if another operation calls this.
    pub fn run<R>(&self, what: &'static str, f: impl FnOnce(&World) -> Result<R, Error>) -> Result<R, Error> {
        self.run_after(what, || (), |(), world| f(world))
    }

    /// Like [`Comm::run`], but first calls `before`, as [`Comm::start_after`] does.
    ///
    /// # Errors
    ///
    /// As for [`Comm::run`].
    pub fn run_after<T, R>(
        &self,
        what: &'static str,
        before: impl FnOnce() -> T,
        f: impl FnOnce(T, &World) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if on_mpi_thread() || current().is_some() {
            return Err(Error::Inside { what });
        }
        let Some(ticket) = self.shared.turns.draw(|_| true) else { return Err(Error::Finished { what }) };
        ends_all_on_panic(&self.shared, || {
            self.shared.serve(ticket, what, before, |ready, world| {
                let result = world.and_then(|world| f(ready, world));
                self.shared.ended();
                result
            })
        })
    }

    /// Returns the most recent operation. This is cheap and works from any thread, even while MPI blocks.
    pub fn progress(&self) -> Progress {
        *lock(&self.shared.progress)
    }

    /// Finalises MPI after all queued work. Collective. Call this at the end of a successful run. Later operations fail
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
            // Ticket 0 is the start of MPI.
            turns: Turns::new(),
            progress: Mutex::new(progress),
        }
    }

    /// Waits for the ticket's turn, then runs the operation.
    fn serve<T, R>(
        &self,
        ticket: u64,
        name: &'static str,
        before: impl FnOnce() -> T,
        f: impl FnOnce(T, Result<&World, Error>) -> R,
    ) -> R {
        self.turns.wait(ticket);
        let result = within(name, || {
            let ready = before();
            self.begun(name);
            let world = lock(&self.world);
            f(ready, world.as_ref().ok_or_else(|| self.absent(name)))
        });
        self.turns.next();
        result
    }

    /// Returns the error for an operation when MPI is not available.
    fn absent(&self, what: &'static str) -> Error {
        self.info.get().and_then(|info| info.as_ref().err().cloned()).unwrap_or(Error::Finished { what })
    }

    /// Records the result of starting MPI and lets the first operation run.
    fn opened(&self, opened: Result<(World, WorldInfo), Error>) {
        self.ended();
        let info = opened.map(|(world, info)| {
            *lock(&self.world) = Some(world);
            info
        });
        // This is set only once: by the MPI thread, or by the caller if that thread does not exist.
        let _ = self.info.set(info);
        self.turns.next();
    }

    /// Records that the next operation begins.
    fn begun(&self, name: &'static str) {
        let mut progress = lock(&self.progress);
        *progress = Progress { number: progress.number + 1, name, since: Instant::now(), running: true };
    }

    /// Records the end of the current operation. Called before its result is sent.
    fn ended(&self) {
        let mut progress = lock(&self.progress);
        progress.running = false;
        progress.since = Instant::now();
    }
}

impl<R> Pending<R> {
    /// Blocks until the operation is done.
    ///
    /// # Errors
    ///
    /// Returns the error of the operation, or the error that kept MPI from starting. Returns [`Error::Finished`] if the
    /// operation was started after the end of MPI, and [`Error::Inside`] if another operation calls this.
    pub fn wait(self) -> Result<R, Error> {
        let what = self.what;
        if on_mpi_thread() || current().is_some() {
            return Err(Error::Inside { what });
        }
        self.answer.recv().unwrap_or(Err(Error::Finished { what }))
    }
}

/// Runs `f` and ends all ranks if it panics. Otherwise the other ranks would wait in a collective forever.
fn ends_all_on_panic<R>(shared: &Shared, f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            let name = current().unwrap_or(lock(&shared.progress).name);
            let text = loaders::panic_text(panic.as_ref());
            die(1, &format!("panic in the MPI operation \"{name}\": {text}"))
        }
    }
}

/// Runs the MPI thread: initialises MPI, runs the queued work, finalises MPI.
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
    // The phase must be set before the result is published, because a thread that has seen the result may call `die` at
    // once.
    die::enter(Phase::Running);
    shared.opened(opened);
    while let Ok(next) = work.recv() {
        match next {
            Work::Run(ticket, job) => job(shared, ticket),
            Work::Finish(ticket, answer) => {
                shared.turns.wait(ticket);
                shared.begun(FINISH);
                let world = lock(&shared.world).take().ok_or_else(|| shared.absent(FINISH));
                let closed = within(FINISH, || world.and_then(World::close));
                die::enter(Phase::Ended);
                shared.turns.next();
                // Sending fails only if the receiver was dropped. Then no thread waits for the result.
                let _ = answer.send(closed);
                return;
            }
        }
    }
}

// Values of any type are exchanged as JSON. This is for rare operations; gradients, sums and weights are sent as binary
// numbers. JSON cannot represent NaN or infinity, so do not send a float this way if it may be one.

impl Comm {
    /// Gathers one value per rank on rank 0, in rank order. Returns `None` on the other ranks. Collective.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: &T,
    ) -> Result<Option<Vec<T>>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| world.gather(&own))?;
        all.map(|all| all.iter().map(|bytes| decode(what, bytes)).collect()).transpose()
    }

    /// Gathers one value per rank on all ranks, in rank order. Collective.
    pub fn gather_all<T: Serialize + DeserializeOwned>(&self, what: &'static str, value: &T) -> Result<Vec<T>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| [b"[", &*all.join(&b','), b"]"].concat());
            world.broadcast(&mut all)?;
            Ok(all)
        })?;
        decode(what, &all)
    }

    /// Returns true if `yes` is true on all ranks. Collective.
    pub fn all(&self, what: &'static str, yes: bool) -> Result<bool, Error> {
        Ok(self.gather_all(what, &yes)?.into_iter().all(|yes| yes))
    }

    /// Sends rank 0's value to all ranks. Other ranks may pass `None`, their value is ignored. Collective.
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: Option<&T>,
    ) -> Result<T, Error> {
        let mut bytes = value.map_or(Ok(Vec::new()), |value| encode(what, value))?;
        self.run(what, |world| world.broadcast(&mut bytes))?;
        decode(what, &bytes)
    }
}

fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|e| Error::Unsendable { what, why: e.to_string() })
}

fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::Value { what, why: e.to_string() })
}
