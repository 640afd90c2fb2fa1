//! The log and the counters of a soak test, and its settings from the environment: duration, frequency of faults and random seed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::process::ResourceUse;
use crate::strike::Fault;

/// The log and the counters of a soak test, shared by its threads.
pub struct Diary {
    start: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
pub struct Counts {
    /// For each kind of fault: how often it occurred, and the longest time until the run ended or continued.
    pub faults: BTreeMap<Fault, FaultCount>,
    /// Number of times a run resumed from a checkpoint, or from the start if there was no checkpoint.
    pub resumes: u64,
    /// Number of resumes on another number of ranks than before.
    pub resumes_on_others: u64,
    /// Number of training runs that reached their last step.
    pub laps: u64,
    /// Number of models that equal the reference byte for byte.
    pub models: u64,
    /// Number of checkpoints with the same content as the reference's checkpoint of the same step.
    pub checkpoints: u64,
    /// Number of readable checkpoints of steps for which the reference has no checkpoint. Only their log lines are
    /// compared with the reference.
    pub others: u64,
    /// Number of log lines of steps and scores that equal the reference.
    pub lines: u64,
    pub failures: Vec<String>,
    /// Names of processes and their resource use.
    pub processes: Vec<(String, ResourceUse)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCount {
    pub count: u64,
    /// The longest time until the run ended or continued.
    pub longest: Duration,
}

impl Diary {
    pub fn new() -> Self {
        Self { start: Instant::now(), counts: Mutex::default() }
    }

    pub fn time(&self) -> Duration {
        self.start.elapsed()
    }

    /// Prints a line about one of the series of training runs.
    pub fn say(&self, series: &str, what: &str) {
        eprintln!("{:6.1} s  {series:6}  {what}", self.time().as_secs_f64());
    }

    pub fn struck(&self, series: &str, fault: Fault, took: Duration, what: &str) {
        let mut counts = self.counts();
        let struck = counts.faults.entry(fault).or_default();
        *struck = FaultCount { count: struck.count + 1, longest: struck.longest.max(took) };
        drop(counts);
        self.say(series, &format!("{:22} {what}", fault.name()));
    }

    pub fn failed(&self, series: &str, what: &str) {
        self.say(series, &format!("FAILED: {what}"));
        self.counts().failures.push(format!("{series}: {what}"));
    }

    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn table(&self) -> String {
        let counts = self.counts();
        let mut text = format!("\n{:24}{:>7}  longest time until it ended or continued\n", "fault", "number");
        for (fault, struck) in &counts.faults {
            let name = fault.name();
            text += &format!("{name:24}{:>7}  {:.1} s\n", struck.count, struck.longest.as_secs_f64());
        }
        let all: u64 = counts.faults.values().map(|struck| struck.count).sum();
        text += &format!("{:24}{all:>7}\n\n", "all");
        for (what, number) in [
            ("resumes", counts.resumes),
            ("  on another number of ranks", counts.resumes_on_others),
            ("trainings that reached their last step", counts.laps),
            ("models equal to the reference, byte for byte", counts.models),
            ("checkpoints equal to the reference", counts.checkpoints),
            ("complete checkpoints of other steps", counts.others),
            ("lines of steps and scores equal to the reference", counts.lines),
        ] {
            text += &format!("{what:60}{number:>9}\n");
        }
        text += &format!(
            "\n{:34}{:>8}{:>10}{:>10}{:>8}{:>10}{:>13}{:>9}\n",
            "process", "seconds", "first KiB", "last KiB", "growth", "peak KiB", "descriptors", "threads"
        );
        for (name, resource_use) in &counts.processes {
            text += &row(name, resource_use);
        }
        counts.failures.iter().for_each(|failure| text += &format!("FAILED: {failure}\n"));
        text
    }
}

fn row(name: &str, resource_use: &ResourceUse) -> String {
    let ResourceUse { memory, descriptors, threads, .. } = resource_use;
    format!(
        "{name:34}{:>8.0}{:>10}{:>10}{:>7.2}%{:>10}{:>13}{:>9}\n",
        resource_use.time.as_secs_f64(),
        memory.first,
        memory.last,
        100.0 * resource_use.growth(),
        resource_use.peak,
        format!("{} -> {}", descriptors.first, descriptors.last),
        format!("{} -> {}", threads.first, threads.last),
    )
}

/// Time from one fault to the next in each series.
pub const PERIOD: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time during which the test causes faults, from MINUTES.
    pub length: Duration,
    /// Seed of all random choices, from SEED. The same seed causes the same faults in the same order, but their times depend on the clock.
    pub seed: u64,
}

impl Settings {
    /// Reads MINUTES (default 2) and SEED (default: the time).
    pub fn of_environment() -> Self {
        let minutes: f64 = variable("MINUTES").unwrap_or(2.0);
        assert!(minutes > 0.0 && minutes < 1e5, "MINUTES={minutes}: expected a positive number");
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        Self { length: Duration::from_secs_f64(60.0 * minutes), seed: variable("SEED").unwrap_or_else(clock) }
    }

    /// Returns the approximate duration of an undisturbed lap: short enough for a few laps, long enough for a few faults in each.
    pub fn lap(&self) -> Duration {
        (self.length / 8).clamp(Duration::from_secs(10), Duration::from_secs(45))
    }

    /// Returns the minimum warm-up time of the steady run. Samples of this time are ignored, because memory may still grow.
    pub fn warm_up(&self) -> Duration {
        self.length / 10
    }

    /// Returns true if the test is long enough to measure constant memory even on a busy machine.
    pub fn is_long(&self) -> bool {
        self.length >= Duration::from_secs(600)
    }
}

/// Parses an environment variable. Returns `None` if it is absent or empty.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}
