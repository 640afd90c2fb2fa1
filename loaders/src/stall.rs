//! Detects file systems that do not answer. A call to such a file system neither returns nor fails, so another thread
//! must detect it.
//!
//! Threads call [`during`] to register the file that they work on. While a [`StallWatch`] exists, its thread observes
//! all of them. If a registered thread has used less than a millisecond of CPU time over a long period, it is waiting
//! in a call. A thread that reads or computes slowly uses more.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, process};

use base::lock;
use base::text::printable;

/// A thread that has used at most this much CPU time since it was last active counts as waiting.
const IDLE: Duration = Duration::from_millis(1);

/// Maximum duration of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallLimits {
    /// Time until a warning, which is repeated after twice the time, and so on. `None` disables warnings.
    pub warn: Option<Duration>,
    /// Time until the process exits with code 1. `None` disables this.
    pub abort: Option<Duration>,
}

/// The current work of a thread.
#[derive(Debug, Clone)]
struct Work {
    action: &'static str,
    path: PathBuf,
    /// Number of the operation, counted per thread. It shows whether the thread has begun a new operation.
    number: u64,
}

/// A thread that has called [`during`].
#[derive(Debug)]
struct Worker {
    /// The thread's directory below `/proc`.
    proc: PathBuf,
    work: Mutex<(Option<Work>, u64)>,
}

/// Number of watches, at most 1. Without a watch, [`during`] costs nothing.
static WATCHES: AtomicUsize = AtomicUsize::new(0);
static WORKERS: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());

/// Removes a thread from the list when the thread ends.
struct RegisteredWorker(Arc<Worker>);

impl Drop for RegisteredWorker {
    fn drop(&mut self) {
        lock(&WORKERS).retain(|worker| !Arc::ptr_eq(worker, &self.0));
    }
}

thread_local! {
    static OWN: RefCell<Option<RegisteredWorker>> = const { RefCell::new(None) };
}

/// Returns this thread's entry in the list, and adds it on the first call. Returns `None` if `/proc/thread-self` does not
/// exist or the thread is ending.
fn own_worker() -> Option<Arc<Worker>> {
    let entry = |own: &RefCell<Option<RegisteredWorker>>| {
        let mut own = own.borrow_mut();
        if own.is_none() {
            let proc = Path::new("/proc").join(fs::read_link("/proc/thread-self").ok()?);
            let worker = Arc::new(Worker { proc, work: Mutex::new((None, 0)) });
            lock(&WORKERS).push(worker.clone());
            *own = Some(RegisteredWorker(worker));
        }
        own.as_ref().map(|registered| registered.0.clone())
    };
    OWN.try_with(entry).ok().flatten()
}

/// Runs `operation`, which waits for the file system of `path`. `action` is a word such as "reading" or "writing",
/// followed by the path in messages.
pub fn during<R>(action: &'static str, path: &Path, operation: impl FnOnce() -> R) -> R {
    register(|| Some((action, path)), operation)
}

/// Runs `operation` without watching it. Use this inside [`during`] for an operation that waits for other threads, not
/// for the file.
pub fn outside<R>(operation: impl FnOnce() -> R) -> R {
    register(|| None, operation)
}

fn register<'a, R>(work: impl FnOnce() -> Option<(&'static str, &'a Path)>, operation: impl FnOnce() -> R) -> R {
    let worker = (WATCHES.load(Ordering::Relaxed) > 0).then(own_worker).flatten();
    let Some(worker) = worker else { return operation() };
    // The work is over even after a panic.
    let _restore = Restore { before: worker.begin(work()), worker };
    operation()
}

struct Restore {
    worker: Arc<Worker>,
    before: Option<Work>,
}

impl Drop for Restore {
    fn drop(&mut self) {
        lock(&self.worker.work).0 = self.before.take();
    }
}

impl Worker {
    /// Records the thread's new work and returns the previous one.
    fn begin(&self, work: Option<(&'static str, &Path)>) -> Option<Work> {
        let mut own = lock(&self.work);
        own.1 += 1;
        let number = own.1;
        let work = work.map(|(action, path)| Work { action, path: path.to_path_buf(), number });
        std::mem::replace(&mut own.0, work)
    }

    /// Returns the CPU time that the thread has used.
    fn processor_time(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.proc.join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
}

/// The watch's data about a thread.
struct WatchedWorker {
    worker: Arc<Worker>,
    number: u64,
    used: Duration,
    since: Instant,
    /// Time of the next warning, counted from `since`. `None` until the first warning about the current wait.
    next: Option<Duration>,
    /// The operation in the last warning, such as "reading PATH". `None` before the first warning.
    warned: Option<String>,
}

impl WatchedWorker {
    /// Compares the thread's work with the previous observation. Returns the work if the thread is waiting.
    fn observe(&mut self, now: Instant) -> Option<Work> {
        let work = lock(&self.worker.work).0.clone();
        let number = work.as_ref().map_or(0, |work| work.number);
        let used = self.worker.processor_time().unwrap_or(self.used);
        if number != self.number || work.is_none() || used.saturating_sub(self.used) > IDLE {
            (self.number, self.used, self.since, self.next) = (number, used, now, None);
            return None;
        }
        work
    }
}

/// Watches all registered threads of this process until it is dropped.
#[derive(Debug)]
pub struct StallWatch {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    /// Starts the watch. `say` receives the warnings, and the reason before the process exits. Does nothing if there
    /// are no limits, if this process already has a watch, or if no thread can be started.
    pub fn start(limits: StallLimits, say: impl Fn(&str) + Send + 'static) -> Self {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let shortest = [limits.warn, limits.abort].into_iter().flatten().min();
        let spawn = |shortest: Duration| {
            WATCHES.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
            let (ended, pause) =
                (ended.clone(), (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(5)));
            let spawned =
                thread::Builder::new().name("stalls".into()).spawn(move || watch(limits, pause, &ended, &say));
            if spawned.is_err() {
                WATCHES.store(0, Ordering::Relaxed);
            }
            spawned.ok()
        };
        let thread = shortest.and_then(spawn);
        StallWatch { ended, thread }
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        WATCHES.store(0, Ordering::Relaxed);
        *lock(&self.ended.0) = true;
        self.ended.1.notify_all();
        // The thread only reads files below `/proc`, which answer at once.
        let _ = thread.join();
    }
}

fn watch(limits: StallLimits, pause: Duration, ended: &(Mutex<bool>, Condvar), say: &dyn Fn(&str)) {
    let mut watched: Vec<WatchedWorker> = Vec::new();
    let mut looked = Instant::now();
    let mut over = lock(&ended.0);
    while !*over {
        over = ended.1.wait_timeout(over, pause).unwrap_or_else(PoisonError::into_inner).0;
        let (workers, now) = (lock(&WORKERS).clone(), Instant::now());
        skip_suspension(&mut watched, pause, looked, now);
        looked = now;
        watched.retain(|watched| workers.iter().any(|worker| Arc::ptr_eq(worker, &watched.worker)));
        for worker in workers {
            if !watched.iter().any(|watched| Arc::ptr_eq(&worker, &watched.worker)) {
                watched.push(WatchedWorker {
                    worker,
                    number: 0,
                    used: Duration::ZERO,
                    since: now,
                    next: None,
                    warned: None,
                });
            }
        }
        for watched in &mut watched {
            match judge(limits, watched, now) {
                Verdict::Nothing => {}
                Verdict::Warn(line) => say(&line),
                Verdict::End(line) => {
                    say(&line);
                    // A thread that waits in a system call cannot be ended in another way.
                    process::exit(1);
                }
            }
        }
    }
}

/// Leaves the time between two observations out of all waits if this process was suspended in it, for example by Ctrl-Z or
/// with its machine. `pause` is the time that the watch wanted to sleep. The threads have not waited for a file while they
/// were suspended.
fn skip_suspension(watched: &mut [WatchedWorker], pause: Duration, looked: Instant, now: Instant) {
    let apart = now - looked;
    if apart > 3 * pause + Duration::from_secs(1) {
        watched.iter_mut().for_each(|watched| watched.since += apart);
    }
}

/// The result of observing a thread.
enum Verdict {
    Nothing,
    Warn(String),
    /// The process must exit with this message.
    End(String),
}

fn judge(limits: StallLimits, watched: &mut WatchedWorker, now: Instant) -> Verdict {
    let waited = now - watched.since;
    let seconds = waited.as_secs_f64();
    let Some(work) = watched.observe(now) else {
        return match watched.warned.take() {
            Some(what) => Verdict::Warn(format!("{what}: the file system answers again after {seconds:.0} s")),
            None => Verdict::Nothing,
        };
    };
    let operation = format!("{} {}", work.action, printable(&work.path.to_string_lossy()));
    let what = format!("{operation}: the file system has not answered for {seconds:.0} s");
    if limits.abort.is_some_and(|limit| waited >= limit) {
        return Verdict::End(format!("error: {what}; the command ends (--stall-abort)"));
    }
    match watched.next.or(limits.warn) {
        Some(due) if waited >= due => {
            (watched.next, watched.warned) = (Some(2 * waited), Some(operation));
            let limit = limits.abort.map(|limit| limit.as_secs_f64());
            let end = limit.map_or_else(String::new, |limit| format!("; the command ends after {limit:.0} s"));
            Verdict::Warn(format!("warning: {what}{end}"))
        }
        _ => Verdict::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;
    use std::sync::mpsc::{self, Receiver};

    /// Watches `operation` with these limits. `operation` gets the messages as they arrive. Returns the remaining messages.
    fn watched(limits: StallLimits, operation: impl FnOnce(&Receiver<String>)) -> Vec<String> {
        let (sender, lines) = mpsc::channel();
        let watch = StallWatch::start(limits, move |line| drop(sender.send(line.to_string())));
        operation(&lines);
        drop(watch);
        lines.iter().collect()
    }

    /// Waits for a message that contains `part`. The messages may also be about the files of other tests.
    fn until(lines: &Receiver<String>, part: &str) {
        let next = || lines.recv_timeout(Duration::from_secs(120)).unwrap_or_else(|_| panic!("no message with {part}"));
        while !next().contains(part) {}
    }

    /// This is a single test because a watch sees all threads of the process.
    #[test]
    fn a_call_that_does_not_return_is_named() {
        let limits = StallLimits { warn: Some(Duration::from_millis(200)), abort: None };
        watched(limits, |lines| {
            let opening = || (0..2).for_each(|_| until(lines, "warning: opening a\\u000ab: "));
            during("reading", Path::new("outer"), || during("opening", Path::new("a\nb"), opening));
            // The watch sees that this operation is another one.
            let again = "opening a\\u000ab: the file system answers again";
            during("reading", Path::new("c"), || until(lines, again));
        });
        // Another thread, which waits for a pipe.
        let (sender, receiver) = mpsc::channel::<()>();
        watched(limits, |lines| {
            let reader = thread::spawn(move || during("reading", Path::new("pipe"), || receiver.recv()));
            until(lines, "warning: reading pipe: ");
            drop(sender);
            let _ = reader.join();
        });
        let unlimited = StallLimits { warn: None, abort: None };
        let wait = || thread::sleep(Duration::from_millis(50));
        assert_eq!(watched(unlimited, |_| during("reading", Path::new("e"), wait)), [""; 0]);
    }

    /// Neither computing inside of [`during`] nor waiting outside of it is a wait for a file.
    #[test]
    fn threads_that_compute_or_have_no_file_do_not_wait() {
        let proc = Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap());
        let worker = Arc::new(Worker { proc, work: Mutex::default() });
        let (since, hour) = (Instant::now(), Duration::from_secs(3600));
        let (used, warned) = (Duration::ZERO, None);
        let mut watched = WatchedWorker { worker: worker.clone(), number: 0, used, since, next: None, warned };
        worker.begin(Some(("reading", Path::new("d"))));
        assert!(watched.observe(since).is_none(), "the operation is new");
        while worker.processor_time().unwrap() <= watched.used + IDLE {
            std::hint::black_box(0);
        }
        assert!(watched.observe(since + hour).is_none() && watched.since == since + hour, "the thread computes");
        // As `outside` does.
        worker.begin(None);
        assert!(watched.observe(since + 2 * hour).is_none());
    }

    #[test]
    fn a_suspension_of_the_process_is_no_wait() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        // Returns how long a thread has waited if it had waited for 100 s at the observation before.
        let waited = |apart: Duration, pause: Duration| {
            let worker = Arc::new(Worker { proc: "/none".into(), work: Mutex::default() });
            let (used, since) = (Duration::ZERO, start);
            let mut watched = [WatchedWorker { worker, number: 1, used, since, next: None, warned: None }];
            let looked = start + 100 * second;
            skip_suspension(&mut watched, pause, looked, looked + apart);
            looked + apart - watched[0].since
        };
        let waits = [5, 16, 17].map(|apart: u32| waited(apart * second, 5 * second));
        assert_eq!(waits, [105, 116, 100].map(|seconds: u32| seconds * second));
        assert_eq!(waited(2 * second, second / 8), 100 * second);
    }

    #[test]
    fn judge_warns_and_ends_the_process_at_their_limits() {
        let worker = Arc::new(Worker { proc: "/none".into(), work: Mutex::default() });
        worker.begin(Some(("writing", Path::new("x"))));
        let limits = StallLimits { warn: Some(Duration::from_secs(60)), abort: Some(Duration::from_secs(100)) };
        let since = Instant::now();
        let mut watched = WatchedWorker { worker, number: 1, used: Duration::ZERO, since, next: None, warned: None };
        let mut after = |seconds| judge(limits, &mut watched, since + Duration::from_secs(seconds));
        assert!(matches!(after(59), Verdict::Nothing));
        let Verdict::Warn(line) = after(61) else { panic!("no warning after 61 s") };
        assert_mentions(&line, &["warning", "writing", "x", "61 s", "100 s"]);
        assert!(matches!(after(99), Verdict::Nothing));
        assert!(matches!(after(100), Verdict::End(line) if line.starts_with("error: writing x: ")));
    }
}
