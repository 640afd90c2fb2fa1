//! The watchdog: names the ranks that make other ranks wait, and why. It works while MPI and all other threads of a
//! rank hang.
//!
//! Each rank records its activity ([`Watch::set_activity`]), and [`Comm`] numbers its operations. Two threads use these data. The *status*
//! thread shares them with the other ranks through small files in OUT/.ranks. It cannot use MPI, which may block or may allow only one
//! thread. The *watchdog* thread decides whether to warn or end the run. It uses only data in memory, so that it works even if the file
//! system hangs. `verdict` has the rules and messages.

mod activity;
mod peers;
mod status_files;
mod verdict;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use activity::Activity;
use base::{lock, screen};
use comm::{Comm, network};
use peers::Peers;
pub use status_files::remove_old_status_files;
use status_files::{Status, StatusFiles};
use verdict::Verdict;

/// Handle to a rank's watchdog. Clones share the same watchdog. The default value has no watchdog.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Shared>>);

struct Shared {
    comm: Comm,
    limits: Limits,
    started: Instant,
    activity: Mutex<(Activity, Instant)>,
    /// Node and GPU of this rank. Empty until the rank has opened a GPU.
    place: OnceLock<String>,
    /// The other ranks on this host. Empty until all ranks have exchanged their hosts.
    neighbours: OnceLock<Vec<usize>>,
    /// True if all ranks have read their files and planned.
    ready: AtomicBool,
    /// True if the first step is done.
    stepped: AtomicBool,
    /// True if the run stops on request, so that its ranks may wait while rank 0 writes the last checkpoint.
    is_stopping: AtomicBool,
    /// The status files. Empty until the output directory exists.
    status_files: OnceLock<StatusFiles>,
    /// The watchdog and the status thread, until [`Watch::stop`] waits for their end.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True if the status thread should read the other ranks' statuses.
    reads_peers: AtomicBool,
    peers: Mutex<Peers>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Watch {
    /// Starts to watch this rank's operations, including the start of MPI. Returns a handle without a watchdog if no limit is set or the
    /// thread cannot be started.
    pub fn start(comm: &Comm, limits: Limits) -> Self {
        if limits.shortest().is_none() {
            return Self::default();
        }
        let shared = Arc::new(Shared {
            comm: comm.clone(),
            limits,
            started: Instant::now(),
            activity: Mutex::new((Activity::Reading, Instant::now())),
            place: OnceLock::new(),
            neighbours: OnceLock::new(),
            ready: AtomicBool::new(false),
            stepped: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            status_files: OnceLock::new(),
            threads: Mutex::default(),
            reads_peers: AtomicBool::new(false),
            peers: Mutex::default(),
            ended: Mutex::new(false),
            end: Condvar::new(),
        });
        let watched = shared.clone();
        let spawned = std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&watched));
        let Ok(thread) = spawned else { return Self::default() };
        lock(&shared.threads).push(thread);
        Self(Some(shared))
    }

    /// Starts to share this rank's status in `out`. All ranks call this after rank 0 has called [`remove_old_status_files`]. A single rank
    /// does the same, because `trireme runs` and `report` take rank 0's file as the sign that the run continues. Does nothing on a second
    /// call.
    pub fn share(&self, out: &Path, rank: usize, ranks: usize) {
        let Some(shared) = self.0.as_ref().filter(|shared| shared.status_files.get().is_none()) else { return };
        let neighbours = shared.neighbours.get().map_or(&[][..], Vec::as_slice);
        let status_files = StatusFiles::new(out, rank, neighbours);
        *lock(&shared.peers) = Peers::without_statuses(ranks);
        if shared.status_files.set(status_files).is_ok() {
            let writer = shared.clone();
            // if the thread cannot start, the other ranks report that this rank gives no sign of life
            let thread = std::thread::Builder::new().name("status".into()).spawn(move || share_status(&writer));
            lock(&shared.threads).extend(thread);
        }
    }

    /// Records what this rank does from now on. This is fast, because no thread holds the lock for long.
    pub fn set_activity(&self, activity: Activity) {
        if let Some(shared) = &self.0 {
            *lock(&shared.activity) = (activity, Instant::now());
        }
    }

    pub fn set_place(&self, place: String) {
        self.0.iter().for_each(|shared| drop(shared.place.set(place.clone())));
    }

    /// Records the other ranks on this rank's host.
    pub fn set_neighbours(&self, ranks: Vec<usize>) {
        self.0.iter().for_each(|shared| drop(shared.neighbours.set(ranks.clone())));
    }

    /// Returns node and GPU of this rank, if it has one.
    pub fn place(&self) -> Option<&str> {
        Some(self.0.as_ref()?.place.get()?.as_str())
    }

    /// Returns how long a rank may wait before the watchdog ends the run. `None` means forever.
    pub fn patience(&self) -> Option<Duration> {
        self.0.as_ref()?.limits.abort
    }

    /// Records whether all ranks have read their files and planned. Once they have, a long wait for them is no longer normal.
    pub fn set_ready(&self, ready: bool) {
        self.0.iter().for_each(|shared| shared.ready.store(ready, Ordering::Relaxed));
    }

    /// Records that the first step is done.
    pub fn stepped(&self) {
        self.0.iter().for_each(|shared| shared.stepped.store(true, Ordering::Relaxed));
    }

    /// Records that all ranks have agreed to stop. From now on, a long wait is no sign of a lost rank.
    pub fn set_stopping(&self) {
        self.0.iter().for_each(|shared| shared.is_stopping.store(true, Ordering::Relaxed));
    }

    /// Returns why this rank may wait forever. The reason is that a rank on this host is gone, or that this rank has waited in one
    /// operation for at least `long`, unless the run stops on request. Returns `None` otherwise.
    pub fn lost(&self, long: Duration) -> Option<String> {
        let shared = self.0.as_ref()?;
        let gone = shared.status_files.get().map_or(Vec::new(), StatusFiles::gone);
        if !gone.is_empty() {
            return Some(format!("{} gone, so the run ends", verdict::all(&gone)));
        }
        if shared.is_stopping.load(Ordering::Relaxed) {
            return None;
        }
        let status = shared.status();
        let waits = status.waits(false).filter(|(_, waited)| status.inside && *waited >= long.as_secs_f64());
        waits.map(|(what, _)| {
            format!("this rank received SIGTERM while it waited in {what}, so the run is probably being ended")
        })
    }

    /// Returns true if this rank may print the last message of a run that is killed. Only one rank may.
    pub fn claims_last_message(&self) -> bool {
        self.0.as_ref().is_none_or(claims_last_message)
    }

    /// Returns which rank of this host is gone and how to continue, for the message about a sum that failed. Returns `None` if no rank is
    /// gone. If another rank already reports it, gives that rank time to do so, and then returns `None`.
    pub fn gone_rank(&self) -> Option<String> {
        let why = self.lost(Duration::MAX)?;
        if self.claims_last_message() {
            return Some(format!("{why}; to continue, use the same command with --resume auto"));
        }
        std::thread::sleep(OTHER_REPORT);
        None
    }

    /// Stops the watchdog. If the run ended normally (`clean`), also removes its files.
    pub fn stop(&self, clean: bool) {
        let Some(shared) = &self.0 else { return };
        *lock(&shared.ended) = true;
        shared.end.notify_all();
        if clean {
            // they must not write a file after its removal, or end the run. After a failure, they may hang with the file system
            lock(&shared.threads).drain(..).for_each(|thread| drop(thread.join()));
            shared.status_files.get().into_iter().for_each(StatusFiles::remove);
        }
    }
}

impl Shared {
    /// Sleeps for `time`, or until the watchdog is stopped. Returns false if it was stopped.
    fn sleep(&self, time: Duration) -> bool {
        let ended = lock(&self.ended);
        let waiting = self.end.wait_timeout_while(ended, time, |ended| !*ended);
        !*waiting.unwrap_or_else(PoisonError::into_inner).0
    }

    /// On rank 0, prints what this rank does if the first step takes long. Before MPI is up, the rank is known from the launcher's
    /// variables.
    fn report_long_start(&self, first: &mut FirstStep, me: &Status) {
        let prefix = comm::rank_prefix();
        let is_root = prefix.is_empty() || prefix.starts_with("rank 0:");
        if self.stepped.load(Ordering::Relaxed) || !is_root {
            return;
        }
        let (activity, _) = *lock(&self.activity);
        if let Some(text) = first.due(self.started.elapsed(), activity, me) {
            print(&text);
        }
    }

    fn status(&self) -> Status {
        let progress = self.comm.progress();
        let (activity, since) = *lock(&self.activity);
        let place =
            self.place.get().filter(|_| activity.is_on_device()).map_or(String::new(), |gpu| format!(" on {gpu}"));
        let waits = progress.running && progress.since.elapsed() >= self.limits.before_warning();
        let connections = if waits { network::connections() } else { network::Connections::default() };
        let status = Status {
            beat: 0,
            host: self.status_files.get().map_or_else(String::new, |files| files.host.clone()),
            pid: std::process::id(),
            operation: progress.number,
            name: progress.name.to_string(),
            inside: progress.running,
            operation_s: progress.since.elapsed().as_secs_f64(),
            activity: format!("{activity}{place}"),
            activity_s: since.elapsed().as_secs_f64(),
            waiting: activity.is_wait(),
            staging: activity == Activity::Staging,
            own_addresses: connections.own,
            silent_addresses: connections.silent,
        };
        match activity {
            // while the devices sum, a rank is as blocked as in an MPI operation, so report it as the next operation
            Activity::DeviceSums { .. } if !status.inside => Status {
                operation: status.operation + 1,
                name: status.activity.clone(),
                inside: true,
                operation_s: status.activity_s,
                ..status
            },
            _ => status,
        }
    }
}

/// Runs the status thread: writes this rank's status, and reads other ranks' statuses when the watchdog needs them.
fn share_status(shared: &Shared) {
    let Some(status_files) = shared.status_files.get() else { return };
    let mut beat = 0;
    loop {
        beat += 1;
        let me = Status { beat, ..shared.status() };
        status_files.write(&me);
        if shared.reads_peers.load(Ordering::Relaxed) {
            Peers::read(&shared.peers, status_files, &me, 3 * shared.limits.period());
        }
        if !shared.sleep(shared.limits.period()) {
            return;
        }
    }
}

/// Claims the last message on another thread, because the file system may hang. Returns false if another rank has claimed it.
fn claims_last_message(shared: &Arc<Shared>) -> bool {
    let (shared, (claimed, claim)) = (shared.clone(), mpsc::channel());
    let claims = move || {
        let _ = claimed.send(shared.status_files.get().is_none_or(StatusFiles::claims_last_message));
    };
    let spawned = std::thread::Builder::new().name("claim".into()).spawn(claims);
    spawned.is_err() || claim.recv_timeout(CLAIM).unwrap_or(true)
}

/// How long a rank waits until it has claimed the last message.
const CLAIM: Duration = Duration::from_secs(1);

/// How long a rank waits for the rank that reports a lost rank and then ends all ranks.
const OTHER_REPORT: Duration = Duration::from_secs(2);

/// Runs the watchdog thread until the watchdog is stopped.
fn watch(shared: &Arc<Shared>) {
    let (limits, period) = (shared.limits, shared.limits.period());
    let mut asleep = Instant::now();
    let mut awake = asleep;
    let mut warned: Option<LastWarning> = None;
    let mut first = FirstStep::default();
    let mut tested: Option<Option<String>> = None;
    // duration of this rank's work before the current operation
    let mut worked = Duration::ZERO;
    while shared.sleep(period) {
        // if this process was suspended, that time does not count as a wait
        if asleep.elapsed() > 3 * period + Duration::from_secs(1) {
            awake = Instant::now();
        }
        asleep = Instant::now();
        let me = shared.status();
        if !me.inside {
            worked = Duration::try_from_secs_f64(me.operation_s).unwrap_or_default();
        }
        shared.report_long_start(&mut first, &me);
        let alone = shared.comm.known().is_some_and(|world| world.size == 1);
        let waits = me.waits(alone);
        if let Some(old) = warned.take_if(|old| waits.as_ref().is_none_or(|(what, _)| *what != old.what)) {
            print(&format!("the run continues after at least {:.0} s: {}", old.lasted.as_secs_f64(), old.what));
        }
        let waited = waits.as_ref().map_or(0.0, |waits| waits.1);
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default().min(awake.elapsed());
        shared.reads_peers.store(waited > limits.before_warning(), Ordering::Relaxed);
        if me.inside && !alone && waited >= CONNECTED && tested.is_none() {
            tested = Some(network::unreachable());
            asleep = Instant::now();
            // the test takes seconds, so the wait may be over
            continue;
        }
        let advice = tested.as_ref().and_then(Option::as_deref);
        let blind = me.inside && !alone && lock(&shared.peers).all.is_empty();
        let ready = shared.ready.load(Ordering::Relaxed);
        let longest = |limit: Duration| match blind {
            true => verdict::longest_wait(limit, ready, worked),
            false => limit * me.patience(alone),
        };
        let judge = |limit: Duration| {
            (waited >= limit).then(|| judge(shared, &me, alone, (limit, longest(limit)), advice)).flatten()
        };
        // waits for the network get no additional time for work
        let end = |network: bool, limit: Duration| if network { limit } else { longest(limit) };
        if let Some((verdict, limit)) = limits.ending(judge) {
            let (text, lasted) = (verdict.text, end(verdict.network, limit).as_secs_f64());
            claims_last_message(shared);
            // the claim may take a second, in which the run may have ended or the wait may be over
            let now = shared.status().waits(alone).map(|(what, _)| what);
            if *lock(&shared.ended) || now.as_ref() != waits.as_ref().map(|(what, _)| what) {
                continue;
            }
            comm::die(1, &format!("{text}. The run ends, because this lasted {lasted:.0} s (--stall-abort). {CURE}"));
        }
        let soon = limits.warn.map(|warn| if advice.is_some() { warn.min(CONNECTED) } else { warn });
        let due = warned.as_ref().map(|old| old.last * 2).or(soon);
        if let (Some(verdict), Some((what, _))) = (due.and_then(judge), waits) {
            let patience = me.patience(alone);
            let end = limits.end(verdict.network).map(|limit| end(verdict.network, limit).as_secs_f64());
            let end = end.map(|seconds| format!("; the run ends after {seconds:.0} s"));
            print(&format!("warning: {}{}", verdict.text, end.unwrap_or_default()));
            warned = Some(LastWarning { what, last: waited, lasted: waited * patience });
        }
    }
}

/// Returns the verdict on a wait of this rank that has lasted for `limit`. Returns `None` if the wait has a normal reason or another rank
/// reports it. `longest` is the limit while no status of another rank is known.
fn judge(
    shared: &Shared,
    me: &Status,
    alone: bool,
    (limit, longest): (Duration, Duration),
    advice: Option<&str>,
) -> Option<Verdict> {
    if alone {
        return Some(verdict::alone(me));
    }
    let rank = shared.comm.known().map(|world| world.rank);
    let peers = lock(&shared.peers);
    match rank.filter(|_| !peers.all.is_empty()) {
        Some(_) if peers.are_reported(limit / 2) => None,
        Some(rank) => verdict::among(me, rank, &peers.all, limit, advice),
        None => verdict::unknown(me, longest, advice),
    }
}

/// After a wait of this length in an MPI operation, the watchdog tests the networks of this node. MPI needs less time to connect two ranks.
const CONNECTED: Duration = Duration::from_secs(15);

const CURE: &str =
    "Check these ranks, files and nodes. A training continues from its last checkpoint with --resume auto";

/// The wait or work that the last warning was about.
struct LastWarning {
    what: String,
    /// Duration of the wait or work when the warning was printed, divided by its [patience](Status::patience).
    last: Duration,
    /// This duration without the division.
    lasted: Duration,
}

fn print(text: &str) {
    screen::say(&format!("{}{text}", comm::rank_prefix()));
}

/// How long a rank may wait before the watchdog prints a warning or ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wait after which the watchdog prints a warning. It is repeated after twice that time, four times, and so on.
    /// `None` means never.
    pub warn: Option<Duration>,
    /// Wait after which the watchdog ends the run. `None` means never.
    pub abort: Option<Duration>,
    /// Like `abort`, for ranks that wait only for MPI or the network.
    pub network: Option<Duration>,
}

impl Default for Limits {
    /// Returns one minute for the warning and half an hour for the end of the run. No step, record or file takes that long, and a file
    /// system that recovers has done so by then.
    ///
    /// For the network the limit is ten minutes. Linux gives up a TCP connection after about 15 minutes without an answer
    /// (`net.ipv4.tcp_retries2`), which a run cannot survive. Until then it sends again at least every two minutes, so an outage of up to
    /// eight minutes never ends a run.
    fn default() -> Self {
        let minutes = |n: u64| Some(Duration::from_secs(60 * n));
        Self { warn: minutes(1), abort: minutes(30), network: minutes(10) }
    }
}

impl Limits {
    fn shortest(&self) -> Option<Duration> {
        self.warn.into_iter().chain(self.abort).chain(self.network).min()
    }

    /// Returns the wait after which a rank starts to look for the cause.
    fn before_warning(&self) -> Duration {
        self.shortest().unwrap_or(Duration::MAX) / 4
    }

    /// Returns the wait after which the run ends. `network` selects the limit for ranks that wait only for the network.
    fn end(&self, network: bool) -> Option<Duration> {
        if network { self.network } else { self.abort }
    }

    /// Returns the verdict that ends the run and the limit that was reached, or `None`. `judge` returns the verdict for a given limit.
    fn ending(&self, judge: impl Fn(Duration) -> Option<Verdict>) -> Option<(Verdict, Duration)> {
        [true, false].into_iter().find_map(|network| {
            let limit = self.end(network)?;
            judge(limit).filter(|verdict| verdict.network == network).map(|verdict| (verdict, limit))
        })
    }

    /// Returns the time between two checks, which is also the time between two status writes. It is long enough for a file system that a
    /// thousand ranks share.
    fn period(&self) -> Duration {
        let eighth = self.shortest().unwrap_or(Duration::MAX) / 8;
        eighth.clamp(Duration::from_millis(50), Duration::from_secs(5))
    }
}

/// Time after which the first message about a long start is printed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Schedules the messages about a long start.
struct FirstStep {
    next: Duration,
}

impl Default for FirstStep {
    fn default() -> Self {
        Self { next: PATIENCE }
    }
}

impl FirstStep {
    /// Returns the message that is due `elapsed` after the start, or `None`. `me` and `activity` say what this rank does.
    fn due(&mut self, elapsed: Duration, activity: Activity, me: &Status) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        while self.next <= elapsed {
            self.next *= 2;
        }
        let why = match activity {
            _ if me.inside => {
                "it waits until every other rank has read, copied and planned, and MPI has connected the ranks"
            }
            Activity::Starting | Activity::Reading | Activity::Staging => {
                "planning a large network, reading a checkpoint, copying with --stage and the first reading of shards take long"
            }
            Activity::Data { .. } => {
                "`trireme bench loader` measures the loader; the first reads of a file come from the disk"
            }
            _ => "a smaller batch or more --threads make steps shorter; `trireme bench step` measures them",
        };
        Some(format!(
            "note: no step has finished {:.0} s after the start: this rank {}; {why}",
            elapsed.as_secs_f64(),
            me.last()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn a_long_start_is_reported_at_growing_intervals() {
        let (mut first, s) = (FirstStep::default(), Duration::from_secs);
        let me = |activity: Activity| Status {
            activity: activity.to_string(),
            activity_s: 7.0,
            operation_s: 9.0,
            ..Status::default()
        };
        let mut at = |elapsed, activity| first.due(s(elapsed), activity, &me(activity));
        assert_eq!(at(29, Activity::Starting), None);
        let text = at(30, Activity::Starting).unwrap();
        mentions(text, &["note: ", "no step", "30 s", "this rank", &Activity::Starting.to_string(), "7 s", "planning"]);
        assert_eq!(at(59, Activity::Starting), None);
        // after a suspension only one message is printed, not one for each missed time
        assert!(at(200, Activity::Data { step: 1, worker: 0 }).unwrap().contains("bench loader"));
        assert_eq!(at(239, Activity::Computing { step: 1 }), None);
        assert!(at(240, Activity::Computing { step: 1 }).unwrap().contains("smaller batch"));
        let waiting = Status { inside: true, name: "comparison".into(), operation: 3, ..me(Activity::Starting) };
        let text = first.due(s(480), Activity::Starting, &waiting).unwrap();
        mentions(text, &["480 s", "this rank", "\"comparison\"", "operation 3", "9 s", "every other rank"]);
    }

    #[test]
    fn waits_for_the_network_have_a_shorter_limit() {
        let limits = Limits::default();
        let ends = |network| {
            let verdict = Verdict { text: String::new(), network };
            let after = |waited: u64| {
                limits.ending(|limit| (limit.as_secs() <= waited).then(|| verdict.clone())).map(|(_, limit)| limit)
            };
            [599, 600, 1799, 1800].map(|waited| after(waited).map(|limit| limit.as_secs()))
        };
        assert_eq!(ends(true), [None, Some(600), Some(600), Some(600)]);
        assert_eq!(ends(false), [None, None, None, Some(1800)]);
    }
}
