//! The handle to a rank's watchdog, and its two threads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::screen;
use comm::Comm;

use super::activity::Activity;
use super::beacon::Beacon;
use super::first_step::FirstStep;
use super::limits::Limits;
use super::news::{News, Peer};
use super::verdict;

/// Handle to a rank's watchdog; clones are handles to the same. The default one is none.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Shared>>);

struct Shared {
    comm: Comm,
    limits: Limits,
    started: Instant,
    activity: Mutex<(Activity, Instant)>,
    /// Whether a step is done.
    stepped: AtomicBool,
    /// Where the ranks share their news, once there is a place.
    beacon: OnceLock<Beacon>,
    /// Whether the other ranks' news are wanted.
    curious: AtomicBool,
    peers: Mutex<Vec<Peer>>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Watch {
    /// Starts watching this rank's operations, the start of MPI included. Watches nothing without limits, or where no thread can be
    /// started.
    pub fn start(comm: &Comm, limits: Limits) -> Self {
        if limits.shortest().is_none() {
            return Self::default();
        }
        let shared = Arc::new(Shared {
            comm: comm.clone(),
            limits,
            started: Instant::now(),
            activity: Mutex::new((Activity::Reading, Instant::now())),
            stepped: AtomicBool::new(false),
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
            // without it the others see no sign of life and report that
            let _ = std::thread::Builder::new().name("beacon".into()).spawn(move || shine(&shared));
        }
    }

    /// Notes what this rank does from now on. Costs a lock that nobody else holds for long.
    pub fn set_activity(&self, activity: Activity) {
        if let Some(shared) = &self.0 {
            *lock(&shared.activity) = (activity, Instant::now());
        }
    }

    /// Notes that the first step is done.
    pub fn stepped(&self) {
        self.0.iter().for_each(|shared| shared.stepped.store(true, Ordering::Relaxed));
    }

    /// Why this rank may wait for ever: a rank of this host is gone, or it has waited in one operation for `long`.
    pub fn lost(&self, long: Duration) -> Option<String> {
        let shared = self.0.as_ref()?;
        let ranks = lock(&shared.peers).len();
        let gone: Vec<String> = shared.beacon.get().map_or(Vec::new(), |beacon| beacon.gone(ranks));
        if !gone.is_empty() {
            return Some(format!(
                "{} gone, and the run with {}",
                verdict::all(&gone),
                if gone.len() == 1 { "it" } else { "them" }
            ));
        }
        let news = shared.news();
        let waits = news.waits(false).filter(|(_, waited)| news.inside && *waited >= long.as_secs_f64());
        waits.map(|(what, _)| format!("SIGTERM while waiting in {what}: if the run ends here"))
    }

    /// Whether this rank is the one that speaks when the run is killed.
    pub fn speaks_last(&self) -> bool {
        self.0.as_ref().and_then(|shared| shared.beacon.get()).is_none_or(Beacon::speaks_last)
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

    /// Says what rank 0 does where no step is done for long. Before MPI is up it is known by its launcher.
    fn speak_of_a_long_start(&self, first: &mut FirstStep) {
        let prefix = comm::rank_prefix();
        let is_root = prefix.is_empty() || prefix.starts_with("rank 0:");
        if self.stepped.load(Ordering::Relaxed) || !is_root {
            return;
        }
        let (activity, since) = *lock(&self.activity);
        if let Some(text) = first.due(self.started.elapsed(), activity, since.elapsed()) {
            print(&text);
        }
    }

    /// This rank's state.
    fn news(&self) -> News {
        let progress = self.comm.progress();
        let (activity, since) = *lock(&self.activity);
        News {
            beat: 0,
            host: String::new(),
            pid: std::process::id(),
            operation: progress.number,
            name: progress.name.to_string(),
            inside: progress.running,
            operation_s: progress.since.elapsed().as_secs_f64(),
            activity: activity.to_string(),
            activity_s: since.elapsed().as_secs_f64(),
            waiting: activity.is_wait(),
            staging: activity == Activity::Staging,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beacon's loop: writes this rank's news and reads those of the others when the watchdog wants them.
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

/// The watchdog's loop.
fn watch(shared: &Shared) {
    let (Limits { warn, abort }, period) = (shared.limits, shared.limits.period());
    let Some(shortest) = shared.limits.shortest() else { return };
    let mut asleep = Instant::now();
    let mut awake = asleep;
    let mut warned: Option<Warned> = None;
    let mut first = FirstStep::default();
    while shared.sleep(period) {
        // time in which this process was stopped is no wait
        if asleep.elapsed() > 3 * period + Duration::from_secs(1) {
            awake = Instant::now();
        }
        asleep = Instant::now();
        shared.speak_of_a_long_start(&mut first);
        let me = shared.news();
        let alone = shared.comm.known().is_some_and(|world| world.size == 1);
        let waits = me.waits(alone);
        if let Some(old) = warned.take_if(|old| waits.as_ref().is_none_or(|(what, _)| *what != old.what)) {
            print(&format!("it goes on: {} after {:.0} s", old.what, old.last.as_secs_f64()));
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
            print(&format!("warning: {verdict}{}", end.unwrap_or_default()));
            warned = Some(Warned { what, last: waited });
        }
    }
}

/// The sentence for a rank that has waited for `limit`.
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

/// Prints a line on stderr, in one write.
fn print(text: &str) {
    screen::say(&format!("{}{text}", comm::rank_prefix()));
}
