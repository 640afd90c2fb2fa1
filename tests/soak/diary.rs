//! What happens in a soak: a line for each fault as it comes, counts for the table at the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::meter::Course;

/// Shared by the threads of a soak.
pub struct Diary {
    start: Instant,
    counts: Mutex<Counts>,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Faults by kind: how many, and the longest time until the run had ended or went on.
    pub faults: BTreeMap<Fault, Struck>,
    /// Runs that went on from a checkpoint, or from the start where there was none yet.
    pub resumes: u64,
    /// Of these, after a change of the number of ranks.
    pub resumes_on_others: u64,
    /// Trainings that came to their last step.
    pub laps: u64,
    /// Models whose bytes were those of the reference.
    pub models: u64,
    /// Checkpoints whose content was that of the reference.
    pub checkpoints: u64,
    /// Checkpoints of steps of which the reference has none; whole, and their step lines are those of the reference.
    pub others: u64,
    /// Lines of steps and scores that were those of the reference.
    pub lines: u64,
    /// What did not hold.
    pub failures: Vec<String>,
    /// Processes by name, and what has become of them.
    pub processes: Vec<(String, Course)>,
}

/// Faults of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Struck {
    /// How many.
    pub count: u64,
    /// The longest time until the run had ended or went on.
    pub longest: Duration,
}

impl Diary {
    /// From now on.
    pub fn new() -> Self {
        Self { start: Instant::now(), counts: Mutex::default() }
    }

    /// How long it has been kept.
    pub fn time(&self) -> Duration {
        self.start.elapsed()
    }

    /// A line of what happened in one of the series of trainings.
    pub fn say(&self, series: &str, what: &str) {
        eprintln!("{:6.1} s  {series:6}  {what}", self.time().as_secs_f64());
    }

    /// A fault that was put in, and what came of it.
    pub fn struck(&self, series: &str, fault: Fault, took: Duration, what: &str) {
        let mut counts = self.counts();
        let struck = counts.faults.entry(fault).or_default();
        *struck = Struck { count: struck.count + 1, longest: struck.longest.max(took) };
        drop(counts);
        self.say(series, &format!("{:22} {what}", fault.name()));
    }

    /// Something that should have held and did not.
    pub fn failed(&self, series: &str, what: &str) {
        self.say(series, &format!("FAILED: {what}"));
        self.counts().failures.push(format!("{series}: {what}"));
    }

    /// The counts so far.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table at the end.
    pub fn table(&self) -> String {
        let counts = self.counts();
        let mut text = format!("\n{:24}{:>7}  longest until it ended or went on\n", "fault", "number");
        for (fault, struck) in &counts.faults {
            let name = fault.name();
            text += &format!("{name:24}{:>7}  {:.1} s\n", struck.count, struck.longest.as_secs_f64());
        }
        let all: u64 = counts.faults.values().map(|struck| struck.count).sum();
        text += &format!("{:24}{all:>7}\n\n", "all");
        for (what, number) in [
            ("resumes", counts.resumes),
            ("  on another number of ranks", counts.resumes_on_others),
            ("trainings that came to their end", counts.laps),
            ("models equal to the reference's, byte for byte", counts.models),
            ("checkpoints equal to the reference's", counts.checkpoints),
            ("checkpoints of steps that the reference has none of, whole", counts.others),
            ("lines of steps and scores equal to the reference's", counts.lines),
        ] {
            text += &format!("{what:60}{number:>9}\n");
        }
        text += &format!(
            "\n{:34}{:>8}{:>10}{:>10}{:>8}{:>10}{:>13}{:>9}\n",
            "process", "seconds", "first KiB", "last KiB", "growth", "peak KiB", "descriptors", "threads"
        );
        for (name, course) in &counts.processes {
            text += &row(name, course);
        }
        counts.failures.iter().for_each(|failure| text += &format!("FAILED: {failure}\n"));
        text
    }
}

fn row(name: &str, course: &Course) -> String {
    let Course { memory, descriptors, threads, .. } = course;
    format!(
        "{name:34}{:>8.0}{:>10}{:>10}{:>7.2}%{:>10}{:>13}{:>9}\n",
        course.time.as_secs_f64(),
        memory.first,
        memory.last,
        100.0 * course.growth(),
        course.peak,
        format!("{} -> {}", descriptors.first, descriptors.last),
        format!("{} -> {}", threads.first, threads.last),
    )
}
