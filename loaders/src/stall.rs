//! Notices file systems that stop answering. Such a call neither returns nor fails, so another thread must look at it.
//!
//! A thread says which file it works on by [`during`]. While a [`StallWatch`] exists, its thread looks at all of them. A thread that has
//! had less than a millisecond of processor time for long waits in one call: one that reads or computes slowly has more.

use crate::text::printable;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, process};

/// Processor time below which a thread counts as waiting.
const IDLE: Duration = Duration::from_millis(1);

/// Environment variables that set the limits.
const WARN: &str = "TRIREME_STALL_WARN";
const ABORT: &str = "TRIREME_STALL_ABORT";

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallLimits {
    /// When a warning is given, and again after twice the time, and so on; `None`: never.
    pub warn: Option<Duration>,
    /// When the process is ended, with exit code 1; `None`: never.
    pub abort: Option<Duration>,
}

/// What a thread does.
#[derive(Debug, Clone)]
struct Work {
    action: &'static str,
    path: PathBuf,
    /// Distinguishes it from all other work of this thread.
    number: u64,
}

/// A thread that has called [`during`].
#[derive(Debug)]
struct Worker {
    /// Its folder below /proc.
    proc: PathBuf,
    work: Mutex<(Option<Work>, u64)>,
}

/// Number of watches, at most 1; without one [`during`] costs nothing.
static WATCHES: AtomicUsize = AtomicUsize::new(0);
static WORKERS: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());

/// Takes a thread off the list when it ends.
struct Registered(Arc<Worker>);

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&WORKERS).retain(|worker| !Arc::ptr_eq(worker, &self.0));
    }
}

thread_local! {
    static OWN: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry of this thread in the list; `None` where the system tells no number of a thread.
fn own() -> Option<Arc<Worker>> {
    let entry = |own: &RefCell<Option<Registered>>| {
        let mut own = own.borrow_mut();
        if own.is_none() {
            let proc = Path::new("/proc").join(fs::read_link("/proc/thread-self").ok()?);
            let worker = Arc::new(Worker { proc, work: Mutex::new((None, 0)) });
            lock(&WORKERS).push(worker.clone());
            *own = Some(Registered(worker));
        }
        own.as_ref().map(|registered| registered.0.clone())
    };
    OWN.try_with(entry).ok().flatten()
}

/// Runs `operation`, which waits for the file system of `path`. `action` completes "... the file": "reading", "writing".
pub fn during<R>(action: &'static str, path: &Path, operation: impl FnOnce() -> R) -> R {
    noting(|| Some((action, path)), operation)
}

/// Runs `operation`, which may be part of what [`during`] runs and waits for other threads, not for a file.
pub fn outside<R>(operation: impl FnOnce() -> R) -> R {
    noting(|| None, operation)
}

fn noting<'a, R>(work: impl FnOnce() -> Option<(&'static str, &'a Path)>, operation: impl FnOnce() -> R) -> R {
    let worker = (WATCHES.load(Ordering::Relaxed) > 0).then(own).flatten();
    let Some(worker) = worker else { return operation() };
    // also behind a panic, the work is over
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
    /// Notes what the thread does from now on, and returns what it did before.
    fn begin(&self, work: Option<(&'static str, &Path)>) -> Option<Work> {
        let mut own = lock(&self.work);
        own.1 += 1;
        let number = own.1;
        let work = work.map(|(action, path)| Work { action, path: path.to_path_buf(), number });
        std::mem::replace(&mut own.0, work)
    }

    /// The time that the thread has had a processor.
    fn processor_time(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.proc.join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
}

/// What the watch knows of a thread.
struct Watched {
    worker: Arc<Worker>,
    number: u64,
    used: Duration,
    since: Instant,
    /// When the next warning is due, counted from `since`; `None` before the first.
    next: Option<Duration>,
}

impl Watched {
    /// Compares what the thread does with the last look at it. Returns its work if it waits.
    fn look(&mut self, now: Instant) -> Option<Work> {
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

/// Watches all threads of this process that say what they do, until it is dropped.
#[derive(Debug)]
pub struct StallWatch {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    /// Begins to watch. `say` gets the warnings, and the reason before the process ends. Watches nothing without limits, beside another
    /// watch of this process, or where no thread can be started.
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
        // it looks at files below /proc alone, which answer at once
        let _ = thread.join();
    }
}

fn watch(limits: StallLimits, pause: Duration, ended: &(Mutex<bool>, Condvar), say: &dyn Fn(&str)) {
    let mut watched: Vec<Watched> = Vec::new();
    let mut over = lock(&ended.0);
    while !*over {
        over = ended.1.wait_timeout(over, pause).unwrap_or_else(PoisonError::into_inner).0;
        let (workers, now) = (lock(&WORKERS).clone(), Instant::now());
        watched.retain(|watched| workers.iter().any(|worker| Arc::ptr_eq(worker, &watched.worker)));
        for worker in workers {
            if !watched.iter().any(|watched| Arc::ptr_eq(&worker, &watched.worker)) {
                watched.push(Watched { worker, number: 0, used: Duration::ZERO, since: now, next: None });
            }
        }
        for watched in &mut watched {
            match judge(limits, watched, now) {
                Verdict::Nothing => {}
                Verdict::Warn(line) => say(&line),
                Verdict::End(line) => {
                    say(&line);
                    // nothing else ends a thread that waits in a call
                    process::exit(1);
                }
            }
        }
    }
}

/// What to say about a thread.
enum Verdict {
    Nothing,
    Warn(String),
    /// The process must end.
    End(String),
}

fn judge(limits: StallLimits, watched: &mut Watched, now: Instant) -> Verdict {
    let (warned, waited) = (watched.next.is_some(), now - watched.since);
    let seconds = waited.as_secs_f64();
    let Some(work) = watched.look(now) else {
        let again = format!("the file system answers again after {seconds:.0} s");
        return if warned { Verdict::Warn(again) } else { Verdict::Nothing };
    };
    let path = printable(&work.path.to_string_lossy()).into_owned();
    let what = format!("{} {path}: the file system has not answered for {seconds:.0} s", work.action);
    if limits.abort.is_some_and(|limit| waited >= limit) {
        return Verdict::End(format!("error: {what}; the command ends ({ABORT})"));
    }
    match watched.next.or(limits.warn) {
        Some(due) if waited >= due => {
            watched.next = Some(2 * waited);
            let limit = limits.abort.map(|limit| limit.as_secs_f64());
            let end = limit.map_or_else(String::new, |limit| format!("; the command ends after {limit:.0} s"));
            Verdict::Warn(format!("warning: {what}{end}"))
        }
        _ => Verdict::Nothing,
    }
}

/// Reads the limits from the environment: 60 s until a warning, and no end.
///
/// # Errors
/// Returns a message if a variable has another value than a time such as `90s`, `30m` or `2h`, or `off`.
pub fn limits_of_environment() -> Result<StallLimits, String> {
    let limit = |name: &str, default: Option<Duration>| match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => {
            time(&text).ok_or_else(|| format!("{name}={}: expected a time as 90s, 30m or 2h, or off", printable(&text)))
        }
    };
    Ok(StallLimits { warn: limit(WARN, Some(Duration::from_secs(60)))?, abort: limit(ABORT, None)? })
}

/// The limit that a text says; the outer `None` if it says none.
fn time(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    let at = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
    (!time.is_zero()).then_some(Some(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Watches `operation` with these limits, and returns what is said about it.
    fn said(limits: StallLimits, operation: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let list = lines.clone();
        let watch = StallWatch::start(limits, move |line| lock(&list).push(line.to_string()));
        operation();
        drop(watch);
        std::mem::take(&mut *lock(&lines))
    }

    /// One test, as all watches of a process see all of its threads.
    #[test]
    fn a_call_that_does_not_return_is_named() {
        let limits = StallLimits { warn: Some(Duration::from_millis(100)), abort: None };
        let wait = |milliseconds| thread::sleep(Duration::from_millis(milliseconds));
        let lines = said(limits, || {
            during("reading", Path::new("outer"), || during("opening", Path::new("a\nb"), || wait(1000)));
            during("reading", Path::new("c"), || wait(20));
            wait(100);
        });
        let about: Vec<&str> = lines.iter().map(|line| line.split(" for ").next().unwrap()).collect();
        assert!(about.len() >= 3, "{lines:?}");
        assert_eq!(about[0], "warning: opening a\\u000ab: the file system has not answered");
        assert_eq!(about[0], about[1]);
        assert!(lines.last().unwrap().starts_with("the file system answers again after "), "{lines:?}");
        // another thread, which waits for a pipe
        let (sender, receiver) = mpsc::channel::<()>();
        let lines = said(limits, || {
            let reader = thread::spawn(move || during("reading", Path::new("pipe"), || receiver.recv()));
            wait(500);
            drop(sender);
            let _ = reader.join();
        });
        assert!(lines.first().is_some_and(|line| line.starts_with("warning: reading pipe: ")), "{lines:?}");
        // work, and waits outside of any, are no stalls
        let lines = said(limits, || {
            during("reading", Path::new("d"), || {
                let end = Instant::now() + Duration::from_millis(500);
                while Instant::now() < end {
                    std::hint::black_box(lines.len());
                }
            });
            during("reading", Path::new("e"), || outside(|| wait(300)));
            wait(300);
        });
        assert_eq!(lines, [""; 0]);
        assert_eq!(
            said(StallLimits { warn: None, abort: None }, || during("reading", Path::new("e"), || wait(50))),
            [""; 0]
        );
    }

    #[test]
    fn the_last_limit_ends() {
        let worker = Arc::new(Worker { proc: "/none".into(), work: Mutex::default() });
        worker.begin(Some(("writing", Path::new("x"))));
        let limits = StallLimits { warn: Some(Duration::from_secs(60)), abort: Some(Duration::from_secs(100)) };
        let since = Instant::now();
        let mut watched = Watched { worker, number: 1, used: Duration::ZERO, since, next: None };
        let mut after = |seconds| judge(limits, &mut watched, since + Duration::from_secs(seconds));
        assert!(matches!(after(59), Verdict::Nothing));
        let expected = "warning: writing x: the file system has not answered for 61 s; the command ends after 100 s";
        assert!(matches!(after(61), Verdict::Warn(line) if line == expected));
        assert!(matches!(after(99), Verdict::Nothing));
        assert!(matches!(after(100), Verdict::End(line) if line.starts_with("error: writing x: ")));
    }

    #[test]
    fn times() {
        let seconds = |text| time(text).map(|limit| limit.map(|limit| limit.as_secs_f64()));
        assert_eq!(["90s", "1.5m", "2h", "250ms"].map(seconds), [90.0, 90.0, 7200.0, 0.25].map(|s| Some(Some(s))));
        assert_eq!((seconds("off"), ["", "90", "s", "0s", "-1s", "1d"].map(seconds)), (Some(None), [None; 6]));
    }
}
