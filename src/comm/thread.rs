//! The one thread that owns MPI, the queue of work before it, and the handle that others hold.
//!
//! While idle the thread blocks on the queue: it neither spins nor polls MPI.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::die::{self, Phase};
use super::{Error, World, WorldInfo, die::die, known_answer, launcher};

/// Handle to the thread that owns MPI. Clones are handles to the same thread.
///
/// Dropping all handles ends the thread but not MPI, which would wait for the other ranks: a run that goes well ends with
/// [`Comm::finish`], one that does not with [`die()`].
#[derive(Clone)]
pub struct Comm {
    queue: Sender<Work>,
    shared: Arc<Shared>,
}

struct Shared {
    world: OnceLock<Result<WorldInfo, Error>>,
    progress: Mutex<Progress>,
}

/// The last operation that the MPI thread took up.
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
    Run(&'static str, Job),
    Finish(Sender<Result<(), Error>>),
}

type Job = Box<dyn FnOnce(Result<&World, Error>) + Send>;

/// The operation before the first that is queued.
const START: &str = "start of MPI";
/// The operation after the last.
const FINISH: &str = "end of MPI";

thread_local! {
    static OWNS_MPI: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is the MPI thread.
pub(super) fn on_mpi_thread() -> bool {
    OWNS_MPI.get()
}

impl Comm {
    /// Spawns the thread that owns MPI and returns at once; MPI initialises there in the background (0.2 to 0.4 s).
    ///
    /// How it went is seen from [`Comm::world`]. MPI libraries write to the process's environment while they
    /// initialise: read what you need of it before, and set nothing until [`Comm::world`] has answered.
    pub fn launch() -> Self {
        static LAUNCHED: AtomicBool = AtomicBool::new(false);
        let (queue, work) = unbounded();
        let progress = Progress { number: 0, name: START, since: Instant::now(), running: true };
        let shared = Arc::new(Shared { world: OnceLock::new(), progress: Mutex::new(progress) });
        let comm = Self { queue, shared: Arc::clone(&shared) };
        if LAUNCHED.swap(true, Ordering::SeqCst) {
            // A set cell would mean that the world is known already; it was made a few lines above.
            let _ = comm.shared.world.set(Err(Error::Twice));
            return comm;
        }
        launcher::remember_environment();
        die::enter(Phase::Starting);
        let spawned = std::thread::Builder::new().name("mpi".into()).spawn(move || {
            OWNS_MPI.set(true);
            // Whatever panics on this thread leaves the other ranks waiting in a collective.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| own_mpi(&work, &shared))) {
                let name = shared.progress().name;
                let text = die::panic_text(panic.as_ref());
                die(1, &format!("panic in the MPI operation \"{name}\": {text}"));
            }
        });
        if let Err(error) = spawned {
            die::enter(Phase::Ended);
            let _ = comm.shared.world.set(Err(Error::Spawn(error.to_string())));
        }
        comm
    }

    /// Who and where this rank is. Waits until MPI is initialised and its known-answer test has passed.
    ///
    /// # Errors
    /// What initialisation or the test failed with.
    pub fn world(&self) -> Result<&WorldInfo, Error> {
        self.shared.world.wait().as_ref().map_err(Error::clone)
    }

    /// Queues `f` for the MPI thread under the name `what`; operations run one by one, in the order they were queued.
    ///
    /// All ranks must queue the same collectives in the same order. An error that `f` returns comes out of
    /// [`Pending::wait`]; a panic in `f` ends all ranks.
    pub fn start<R: Send + 'static>(
        &self,
        what: &'static str,
        f: impl FnOnce(&World) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        let (sender, answer) = bounded(1);
        let shared = Arc::clone(&self.shared);
        let job: Job = Box::new(move |world| {
            let result = world.and_then(f).map_err(|error| error.during(what));
            shared.ended();
            // Nobody waits any more if the receiver is gone.
            let _ = sender.send(result);
        });
        // A closed queue drops the job and with it the sender, which `wait` reports.
        let _ = self.queue.send(Work::Run(what, job));
        Pending { what, answer }
    }

    /// [`Comm::start`], then [`Pending::wait`].
    pub fn run<R: Send + 'static>(
        &self,
        what: &'static str,
        f: impl FnOnce(&World) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.start(what, f).wait()
    }

    /// The operation that the MPI thread took up last. Cheap, from any thread, also while MPI blocks.
    pub fn progress(&self) -> Progress {
        *self.shared.progress()
    }

    /// Finalises MPI after all queued work; collective. The last thing before a normal end: after it, operations fail
    /// with [`Error::Finished`].
    pub fn finish(&self) -> Result<(), Error> {
        let (sender, answer) = bounded(1);
        let _ = self.queue.send(Work::Finish(sender));
        Pending { what: FINISH, answer }.wait()
    }
}

impl Shared {
    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the end of the operation under way, before anybody learns of its result.
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
        if on_mpi_thread() {
            return Err(Error::Inside { what });
        }
        self.answer.recv().unwrap_or(Err(Error::Finished { what }))
    }
}

/// The thread's life: initialise, work off the queue, finalise.
fn own_mpi(work: &Receiver<Work>, shared: &Shared) {
    let opened = World::open().and_then(|(world, info)| {
        die::set_rank(info.rank, info.size);
        known_answer::check(&world)?;
        Ok((world, info))
    });
    let opened = opened.map_err(|error| error.during(START));
    // The phase comes before the answer: who has seen the world may die at once.
    die::enter(Phase::Running);
    shared.ended();
    let (world, outcome) = match opened {
        Ok((world, info)) => (Ok(world), Ok(info)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    // Only this thread sets it, once.
    let _ = shared.world.set(outcome);
    while let Ok(next) = work.recv() {
        match next {
            Work::Run(name, job) => {
                let number = shared.progress().number + 1;
                *shared.progress() = Progress { number, name, since: Instant::now(), running: true };
                job(world.as_ref().map_err(Error::clone));
            }
            Work::Finish(answer) => {
                let closed = world.and_then(World::close).map_err(|error| error.during(FINISH));
                die::enter(Phase::Ended);
                // Nobody waits any more if the receiver is gone.
                let _ = answer.send(closed);
                return;
            }
        }
    }
}
