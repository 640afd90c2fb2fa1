//! What a process holds: memory, descriptors, threads; and whether that stays flat.

use std::fs;
use std::time::{Duration, Instant};

/// Taken about once a second.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the first.
    at: Duration,
    /// Anonymous and shared memory in KiB. Mapped files do not count: their pages come and go as the system likes.
    memory: u64,
    descriptors: u64,
    threads: u64,
}

/// The samples of one process.
#[derive(Debug)]
pub struct Meter {
    process: u32,
    start: Instant,
    samples: Vec<Sample>,
}

/// The beginning of a process's samples beside their end.
#[derive(Clone, Copy, Debug)]
pub struct Change<T> {
    /// In the first quarter.
    pub first: T,
    /// In the last quarter.
    pub last: T,
}

/// What has become of a process over its samples.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// From the first sample after the warm-up to the last.
    pub time: Duration,
    /// Medians of memory in KiB.
    pub memory: Change<u64>,
    /// The most memory of all samples, in KiB.
    pub peak: u64,
    /// The least number of open descriptors: files that are open for a moment do not count.
    pub descriptors: Change<u64>,
    /// The least number of threads.
    pub threads: Change<u64>,
}

impl Meter {
    /// Of this process.
    pub fn new(process: u32) -> Self {
        Self { process, start: Instant::now(), samples: Vec::new() }
    }

    /// Takes a sample, unless the process is gone.
    pub fn sample(&mut self) {
        let at = self.start.elapsed();
        self.samples.extend(sample(self.process, at));
    }

    /// From its first sample to its last.
    pub fn age(&self) -> Duration {
        self.samples.last().map_or(Duration::ZERO, |sample| sample.at)
    }

    /// What has become of the process since so long after the first sample; nothing if there are too few samples to say.
    pub fn course(&self, warm_up: Duration) -> Option<Course> {
        let from = self.samples.iter().position(|sample| sample.at >= warm_up)?;
        let warm = &self.samples[from..];
        let quarter = warm.len() / 4;
        if quarter < 3 {
            return None;
        }
        let (head, tail) = (&warm[..quarter], &warm[warm.len() - quarter..]);
        let change = |of: fn(&[Sample]) -> u64| Change { first: of(head), last: of(tail) };
        Some(Course {
            time: warm[warm.len() - 1].at - warm[0].at,
            memory: change(|part| median(part.iter().map(|sample| sample.memory).collect())),
            peak: warm.iter().map(|sample| sample.memory).max().unwrap_or(0),
            descriptors: change(|part| part.iter().map(|sample| sample.descriptors).min().unwrap_or(0)),
            threads: change(|part| part.iter().map(|sample| sample.threads).min().unwrap_or(0)),
        })
    }
}

impl Course {
    /// By how much of its first value memory has grown.
    pub fn growth(&self) -> f64 {
        self.memory.last as f64 / self.memory.first as f64 - 1.0
    }

    /// Memory within 1 %, no more descriptors and threads than at first.
    pub fn is_flat(&self) -> bool {
        let kept = |change: Change<u64>| change.last <= change.first;
        self.growth() <= 0.01 && kept(self.descriptors) && kept(self.threads)
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn sample(process: u32, at: Duration) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    let memory = field("RssAnon:")? + field("RssShmem:")? + field("VmSwap:")?;
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
    Some(Sample { at, memory, descriptors, threads: field("Threads:")? })
}

#[test]
fn growth_is_seen_and_peaks_are_not_growth() {
    let meter = |memory: fn(u64) -> u64, descriptors: fn(u64) -> u64| {
        let sample =
            |s| Sample { at: Duration::from_secs(s), memory: memory(s), descriptors: descriptors(s), threads: 4 };
        Meter { process: 0, start: Instant::now(), samples: (0..100).map(sample).collect() }
    };
    let flat = |memory, descriptors| meter(memory, descriptors).course(Duration::from_secs(20)).unwrap().is_flat();
    assert!(flat(|s| if s < 20 { 10 * s } else { 1000 }, |_| 30));
    assert!(flat(|s| if s % 5 == 0 { 1500 } else { 1000 }, |s| 30 + s % 2));
    assert!(!flat(|s| 1000 + s / 4, |_| 30), "15 of 1000 more");
    assert!(!flat(|_| 1000, |s| 30 + s / 60));
    assert!(meter(|_| 1, |_| 1).course(Duration::from_secs(95)).is_none());
}
