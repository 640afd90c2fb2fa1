//! The watchdog: says which ranks keep the others waiting, and with what, also while MPI and every other thread of a rank are stuck.
//!
//! Each rank notes what it does ([`Watch::doing`]) and [`Comm`] numbers its operations. Two threads look at that: the *beacon* shares
//! it through small files under OUT/.ranks, since MPI cannot be asked while it blocks (and may have been granted one thread at a time);
//! the *watchdog* judges, from memory alone, so that it speaks even where the file system hangs. What is judged, and said: `verdict`.

mod beacon;
mod verdict;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::{self, Comm};
use beacon::Beacon;
use verdict::{News, Peer};

/// What a rank does between collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reads the recipe, opens the data, plans.
    Starting,
    /// Waits for its loader.
    Data {
        /// The optimizer step under way, from 1.
        step: u64,
        /// The worker whose share is waited for.
        worker: usize,
    },
    /// Forward, backward, update.
    Computing {
        /// The optimizer step under way, from 1.
        step: u64,
    },
    /// Evaluation.
    Scoring {
        /// Logical batch.
        batch: u64,
    },
    /// Rank 0 writes a model or a checkpoint.
    Writing {
        /// Optimizer steps done.
        step: u64,
    },
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Doing::Starting => write!(f, "prepares the run"),
            Doing::Data { step, worker } => write!(f, "waits for data (step {step}, worker {worker})"),
            Doing::Computing { step } => write!(f, "computes step {step}"),
            Doing::Scoring { batch } => write!(f, "scores batch {batch}"),
            Doing::Writing { step } => write!(f, "writes the files of step {step}"),
        }
    }
}

/// How long is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wait after which the watchdog speaks; again after twice that, four times, and so on. `None`: never.
    pub warn: Option<Duration>,
    /// Wait after which it ends the run. `None`: never.
    pub abort: Option<Duration>,
}

impl Default for Limits {
    /// A word after a minute. The end after half an hour: no step, record or file takes that long, and file systems that come back at all
    /// are back by then.
    fn default() -> Self {
        Self { warn: Some(Duration::from_secs(60)), abort: Some(Duration::from_secs(1800)) }
    }
}

impl Limits {
    /// The shortest wait that calls for anything.
    fn shortest(&self) -> Option<Duration> {
        self.warn.into_iter().chain(self.abort).min()
    }

    /// Time between two looks, and between two signs of life: rare enough for a file system that a thousand ranks share.
    fn period(&self) -> Duration {
        let eighth = self.shortest().unwrap_or(Duration::MAX) / 8;
        eighth.clamp(Duration::from_millis(50), Duration::from_secs(5))
    }
}

/// Handle to a rank's watchdog; clones are handles to the same. The default one is none.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Shared>>);

struct Shared {
    comm: Comm,
    limits: Limits,
    doing: Mutex<(Doing, Instant)>,
    /// Where the ranks share their news, once there is a place.
    beacon: OnceLock<Beacon>,
    /// Whether the other ranks' news are wanted.
    curious: AtomicBool,
    peers: Mutex<Vec<Peer>>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Watch {
    /// Begins to watch this rank's operations, the start of MPI included. Without limits, or where no thread can be had, nothing is
    /// watched.
    pub fn start(comm: &Comm, limits: Limits) -> Self {
        if limits.shortest().is_none() {
            return Self::default();
        }
        let shared = Arc::new(Shared {
            comm: comm.clone(),
            limits,
            doing: Mutex::new((Doing::Starting, Instant::now())),
            beacon: OnceLock::new(),
            curious: AtomicBool::new(false),
            peers: Mutex::default(),
            ended: Mutex::new(false),
            end: Condvar::new(),
        });
        let watched = shared.clone();
        let spawned = std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&watched));
        spawned.map_or_else(|_| Self::default(), |_| Self(Some(shared)))
    }

    /// From now on this rank shares its news with the others under `out`; all ranks call it, rank 0 before the others. A second call does
    /// nothing.
    pub fn share(&self, out: &Path, rank: usize, ranks: usize) {
        let Some(shared) = self.0.as_ref().filter(|shared| ranks > 1 && shared.beacon.get().is_none()) else { return };
        let beacon = Beacon::new(out, rank, ranks);
        *lock(&shared.peers) = vec![Peer::unheard(Instant::now()); ranks];
        if shared.beacon.set(beacon).is_ok() {
            let shared = shared.clone();
            // without it the others see no sign of life, and say so
            let _ = std::thread::Builder::new().name("beacon".into()).spawn(move || shine(&shared));
        }
    }

    /// Notes what this rank turns to. Costs a lock that nobody holds.
    pub fn doing(&self, doing: Doing) {
        if let Some(shared) = &self.0 {
            *lock(&shared.doing) = (doing, Instant::now());
        }
    }

    /// Ends the watch; a run that ended well leaves no files of it.
    pub fn stop(&self, clean: bool) {
        let Some(shared) = &self.0 else { return };
        *lock(&shared.ended) = true;
        shared.end.notify_all();
        if let Some(beacon) = shared.beacon.get().filter(|_| clean) {
            beacon.remove();
        }
    }
}

impl Shared {
    /// Sleeps; `false` once the watch is over.
    fn sleep(&self, time: Duration) -> bool {
        let ended = lock(&self.ended);
        let waiting = self.end.wait_timeout_while(ended, time, |ended| !*ended);
        !*waiting.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What there is to say of this rank.
    fn news(&self) -> News {
        let progress = self.comm.progress();
        let (doing, since) = *lock(&self.doing);
        News {
            beat: 0,
            host: String::new(),
            pid: std::process::id(),
            operation: progress.number,
            name: progress.name.to_string(),
            inside: progress.running,
            operation_s: progress.since.elapsed().as_secs_f64(),
            doing: doing.to_string(),
            doing_s: since.elapsed().as_secs_f64(),
            loading: matches!(doing, Doing::Data { .. }),
            writing: matches!(doing, Doing::Writing { .. }),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beacon's life: this rank's news out, and in, when the watchdog is curious, those of the others.
fn shine(shared: &Shared) {
    let Some(beacon) = shared.beacon.get() else { return };
    let mut beat = 0;
    loop {
        beat += 1;
        beacon.write(News { beat, ..shared.news() });
        if shared.curious.load(Ordering::Relaxed) {
            let ranks = lock(&shared.peers).len();
            for rank in 0..ranks {
                // read without the lock: a file system may hang
                if let Some(news) = beacon.read(rank) {
                    lock(&shared.peers)[rank].hear(news, Instant::now());
                }
            }
        }
        if !shared.sleep(shared.limits.period()) {
            return;
        }
    }
}

/// The watchdog's life.
fn watch(shared: &Shared) {
    let (Limits { warn, abort }, period) = (shared.limits, shared.limits.period());
    let Some(shortest) = shared.limits.shortest() else { return };
    let mut asleep = Instant::now();
    let mut awake = asleep;
    let mut warned: Option<Warned> = None;
    while shared.sleep(period) {
        // a process that was stopped has not waited meanwhile
        if asleep.elapsed() > 3 * period + Duration::from_secs(1) {
            awake = Instant::now();
        }
        asleep = Instant::now();
        let me = shared.news();
        let alone = shared.comm.known().is_some_and(|world| world.size == 1);
        let waits = me.waits(alone);
        if let Some(old) = warned.take_if(|old| waits.as_ref().is_none_or(|(what, _)| *what != old.what)) {
            say(&format!("it goes on: {} after {:.0} s", old.what, old.last.as_secs_f64()));
        }
        let waited = waits.as_ref().map_or(0.0, |waits| waits.1);
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default().min(awake.elapsed());
        shared.curious.store(waited > shortest / 4, Ordering::Relaxed);
        let judge = |limit: &Duration| (waited >= *limit).then(|| judge(shared, &me, alone, *limit)).flatten();
        if let Some((verdict, limit)) = abort.and_then(|limit| Some((judge(&limit)?, limit.as_secs_f64()))) {
            comm::die(1, &format!("{verdict}. The run ends after {limit:.0} s of this (--stall-abort); {CURE}"));
        }
        let due = warned.as_ref().map(|old| old.last * 2).or(warn);
        if let (Some(verdict), Some((what, _))) = (due.as_ref().and_then(judge), waits) {
            let end = abort.map(|limit| format!("; the run ends after {:.0} s", limit.as_secs_f64()));
            say(&format!("warning: {verdict}{}", end.unwrap_or_default()));
            warned = Some(Warned { what, last: waited });
        }
    }
}

/// The judgement of a rank that has waited for `limit`.
fn judge(shared: &Shared, me: &News, alone: bool, limit: Duration) -> Option<String> {
    if alone {
        return Some(verdict::alone(me));
    }
    let rank = shared.comm.known().map(|world| world.rank);
    let peers = lock(&shared.peers);
    match rank.filter(|_| !peers.is_empty()) {
        Some(rank) => verdict::among(me, rank, &peers, limit),
        None => verdict::unknown(me, limit),
    }
}

const CURE: &str = "look at the ranks, files and nodes named; --resume auto goes on from the last checkpoint";

/// The last warning: what was waited for, and for how long.
struct Warned {
    what: String,
    last: Duration,
}

/// A line on stderr, in one piece.
fn say(text: &str) {
    eprintln!("{}{text}", comm::rank_prefix());
}
