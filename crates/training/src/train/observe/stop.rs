//! Requests to end a run early: a signal or a time limit. Each rank checks its own signals and limits. All ranks learn of a request with
//! the metrics of the next step. If ranks step independently, they learn of it at the next synchronisation or at the end of the epoch.
//!
//! A signal that asks for the end (see [`signals`]) only sets a flag. A second SIGINT ends the process at once with exit code 130. If the
//! environment has the end time of a Slurm job, this time is another limit.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base::environment;
use comm::launcher;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::error::Error;
use crate::signals;

/// Number of steps that must still fit before a time limit.
const STEPS: u32 = 3;

/// Time that MPI and the launcher need to end.
const SPARE: Duration = Duration::from_secs(1);

/// A point in time by which the run must be over.
#[derive(Clone, Debug)]
struct Limit {
    at: Instant,
    name: String,
}

/// This rank's reasons to stop.
#[derive(Debug, Default)]
pub struct Stop {
    /// Number of the last signal that was received, or 0.
    signal: Arc<AtomicUsize>,
    limit: Option<Limit>,
    processor: Option<ProcessorLimit>,
    /// Duration of the longest step so far.
    step: Cell<Duration>,
    /// Number and total time of the steps after the first step. The first step takes longer, because it prepares things that later steps
    /// reuse.
    later: Cell<(u32, Duration)>,
    /// Number of steps after the next step that may pass until all ranks know about a request.
    apart: Cell<u32>,
    /// Duration of the last checkpoint, from the start of the snapshot to the end of the write.
    checkpoint: Cell<Duration>,
    /// True if the output directory is gone or belongs to another run.
    folder_lost: Cell<bool>,
    /// The reason for the first request. It is kept because the margin shrinks when a checkpoint is faster than estimated, and then a
    /// limit may no longer be near.
    first_reason: OnceCell<String>,
}

impl Stop {
    /// Installs signal handlers. The time limit `limit` begins at `started`.
    pub fn listen(limit: Option<Duration>, started: Instant) -> Result<Self, Error> {
        let stop = Self {
            limit: nearest(limit, started, slurm_end()),
            processor: ProcessorLimit::from_process(started),
            ..Self::default()
        };
        let refuse = Error::Signals;
        for signal in signals::requests() {
            flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize).map_err(refuse)?;
        }
        // in the other order, a SIGINT between the two calls would have no effect
        signals::end_on_second(SIGINT, &Arc::default()).map_err(refuse)?;
        Ok(stop)
    }

    /// Returns true if this rank requests a stop.
    pub fn requested(&self) -> bool {
        let Some(reason) = self.reason_within(Duration::ZERO) else { return false };
        self.first_reason.get_or_init(|| reason);
        true
    }

    /// Returns this rank's reason to stop as text, or `None` if only another rank requested the stop.
    pub fn reason(&self) -> Option<String> {
        self.first_reason.get().cloned().or_else(|| self.reason_within(TOLERANCE))
    }

    /// Returns the reason that this rank has now, or will have within `time` because of a limit.
    fn reason_within(&self, time: Duration) -> Option<String> {
        let needed = time.saturating_add(self.margin());
        match (self.signal.load(Ordering::Relaxed) as i32, &self.limit) {
            (signal, _) if signal != 0 => Some(signals::name(signal)),
            _ if self.folder_lost.get() => Some("the output folder is gone or belongs to another run".into()),
            (_, Some(limit)) if limit.is_within(needed) => Some(format!("{} is near", limit.name)),
            _ if self.processor.is_some_and(|limit| limit.is_within(needed, processor_time())) => {
                Some("the limit of CPU time (ulimit -t) is near".into())
            }
            _ => None,
        }
    }

    /// Records the maximum number of steps until ranks communicate again, or 0 if they do in each step.
    pub fn note_apart(&self, steps: u64) {
        self.apart.set(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    pub fn note_folder(&self, is_lost: bool) {
        self.folder_lost.set(is_lost);
    }

    pub fn note_step(&self, took: Duration) {
        let is_first = self.step.get().is_zero();
        self.step.set(self.step.get().max(took));
        if !is_first {
            let (steps, time) = self.later.get();
            self.later.set((steps.saturating_add(1), time.saturating_add(took)));
        }
    }

    /// Records how long a checkpoint takes, measured or estimated.
    pub fn note_checkpoint(&self, took: Duration) {
        self.checkpoint.set(took);
    }

    /// Returns the last recorded duration of a checkpoint.
    pub fn checkpoint(&self) -> Duration {
        self.checkpoint.get()
    }

    /// Returns the time that must be left before the limit. It is the sum of four times: twice the time of the last
    /// checkpoint, [`STEPS`] steps of maximum length, the steps until all ranks know about a request, and [`SPARE`].
    fn margin(&self) -> Duration {
        let (steps, time) = self.later.get();
        let apart = time.checked_div(steps).unwrap_or_default().saturating_mul(self.apart.get());
        apart.saturating_add(2 * self.checkpoint.get() + STEPS * self.step.get() + SPARE)
    }
}

impl Limit {
    fn is_within(&self, time: Duration) -> bool {
        self.at.saturating_duration_since(Instant::now()) <= time
    }
}

/// The limit of CPU time (RLIMIT_CPU). `ulimit -t` sets the soft and the hard limit to the same value. The kernel then sends SIGKILL
/// without an earlier signal.
#[derive(Clone, Copy, Debug)]
struct ProcessorLimit {
    most: Duration,
    started: Instant,
}

impl ProcessorLimit {
    fn from_process(started: Instant) -> Option<Self> {
        let limit = getrlimit(Resource::Cpu);
        let most = limit.current.into_iter().chain(limit.maximum).min()?;
        Some(Self { most: Duration::from_secs(most), started })
    }

    /// Returns true if the limit may be reached within `time`. Assumes that the process keeps using as many cores as before. `used` is the
    /// CPU time so far.
    fn is_within(&self, time: Duration, used: Duration) -> bool {
        let elapsed = self.started.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let processors = (used.as_secs_f64() / elapsed).max(1.0);
        self.most.saturating_sub(used).as_secs_f64() <= time.as_secs_f64() * processors
    }
}

/// Returns the CPU time of all threads of this process.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Added to the margin when the reason for a stop is reported. So a rank that has nearly reached its own limit names this limit, even if
/// another rank requested the stop slightly earlier.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Returns the time until Slurm ends the job. Returns `None` if the job has already ended, because a shell can still have its variables.
fn slurm_end() -> Option<Duration> {
    if launcher::is_over(environment::variable) {
        return None;
    }
    let end = environment::variable(launcher::END)?.trim().parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Duration::from_secs(end).saturating_sub(now))
}

/// Returns the earlier one of `limit`, which begins at `started`, and the end of the Slurm job.
fn nearest(limit: Option<Duration>, started: Instant, slurm: Option<Duration>) -> Option<Limit> {
    // ignore a limit that is so late that the clock cannot represent it
    let limit_at = |from: Instant, time: Option<Duration>, name: &str| {
        Some(Limit { at: from.checked_add(time?)?, name: name.into() })
    };
    let own = limit_at(started, limit, "the end of --time-limit");
    let slurm = limit_at(Instant::now(), slurm, "the end of the Slurm job");
    own.into_iter().chain(slurm).min_by_key(|limit| limit.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn the_earlier_limit_counts() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let name = |limit, slurm| nearest(limit, now, slurm).map(|l: Limit| l.name);
        assert_eq!(name(None, None), None);
        assert_eq!(name(Some(Duration::MAX), Some(Duration::MAX)), None);
        mentions(name(Some(minute), Some(2 * minute)).unwrap(), &["--time-limit"]);
        mentions(name(Some(3 * minute), Some(2 * minute)).unwrap(), &["Slurm job"]);
    }

    #[test]
    fn processor_time_is_used_by_all_threads_at_once() {
        let second = Duration::from_secs(1);
        let started = Instant::now().checked_sub(100 * second).unwrap();
        let limit = ProcessorLimit { most: 800 * second, started };
        // on average four cores were busy, so the remaining 400 s of CPU time last for 100 s
        assert!(limit.is_within(101 * second, 400 * second) && !limit.is_within(90 * second, 400 * second));
        assert!(limit.is_within(Duration::ZERO, 900 * second));
    }

    #[test]
    fn steps_and_checkpoints_must_fit_before_the_limit() {
        let limit = nearest(Some(Duration::from_secs(20)), Instant::now(), None);
        let stop = Stop { limit, ..Stop::default() };
        assert!(!stop.requested());
        stop.note_step(Duration::from_secs(4));
        stop.note_step(Duration::from_secs(1));
        assert!(!stop.requested());
        stop.note_checkpoint(Duration::from_secs(4));
        assert!(stop.requested());
        mentions(stop.reason().unwrap(), &["--time-limit", "near"]);
        stop.note_checkpoint(Duration::from_secs(1));
        assert!(!stop.requested());
        // the rest of the margin needs 15 of the 20 s, so two more steps of 1 s fit but six do not
        stop.note_apart(6);
        assert!(stop.requested());
        stop.note_apart(2);
        assert!(!stop.requested());
        stop.note_apart(u64::MAX);
        assert!(stop.requested());
    }

    /// The last checkpoint before a stop may be the first one that is measured.
    #[test]
    fn the_reason_stays_when_a_checkpoint_is_faster_than_estimated() {
        let limit = nearest(Some(Duration::from_secs(20)), Instant::now(), None);
        let stop = Stop { limit, ..Stop::default() };
        assert_eq!(stop.reason(), None);
        stop.note_checkpoint(Duration::from_secs(10));
        assert!(stop.requested());
        stop.note_checkpoint(Duration::from_millis(100));
        assert!(!stop.requested());
        mentions(stop.reason().unwrap(), &["--time-limit", "near"]);
    }
}
