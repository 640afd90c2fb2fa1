//! A started training program, and the resources that its ranks use.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::place::Place;
use crate::strike::Fault;
use crate::training::Training;
use support::program::{PATIENCE, ProgramOutput, Running, is_alive, signal};

const PAUSE: Duration = Duration::from_millis(20);

const SAMPLED: Duration = Duration::from_secs(1);

/// The options of one start of the training program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Number of ranks. 0 starts the program without mpirun.
    pub ranks: usize,
    /// If true, records are read instead of mapped.
    pub reads: bool,
}

/// A started training program: a launcher with its ranks, or a single process.
pub struct Process {
    running: Option<Running>,
    pub options: LaunchOptions,
    /// The time of the start.
    pub begun: SystemTime,
    pub survived: Option<Fault>,
    /// Process ids of all ranks seen so far.
    processes: Vec<u32>,
    meters: Vec<Meter>,
    sampled: Instant,
}

impl LaunchOptions {
    /// Describes the settings for the diary.
    pub fn text(self) -> String {
        let io = if self.reads { "read" } else { "mmap" };
        if self.ranks == 0 { format!("1 process, {io}") } else { format!("{} ranks, {io}", self.ranks) }
    }
}

impl Process {
    /// Starts the process, which resumes the run if there is a checkpoint.
    pub fn start(training: &Training, options: LaunchOptions, place: &Place, more: &[&str]) -> Self {
        let io = if options.reads { "loader.io=read" } else { "loader.io=mmap" };
        let begun = SystemTime::now();
        let running = training.start(options.ranks, place, &[&["--set", io, "--resume", "auto"], more].concat());
        let (processes, meters) = (Vec::new(), Vec::new());
        Self { running: Some(running), options, begun, survived: None, processes, meters, sampled: Instant::now() }
    }

    /// Returns the process id of the launcher, or of the process if there is no launcher.
    pub fn launcher(&self) -> u32 {
        self.running().id()
    }

    /// Returns the process ids of the ranks that have started so far.
    pub fn ranks(&mut self) -> Vec<u32> {
        let ranks = if self.options.ranks == 0 { vec![self.launcher()] } else { self.running().ranks() };
        let new: Vec<u32> = ranks.iter().copied().filter(|rank| !self.processes.contains(rank)).collect();
        self.meters.extend(new.iter().map(|&rank| Meter::new(rank)));
        self.processes.extend(new);
        ranks
    }

    pub fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(Running::has_ended)
    }

    /// Waits until `done` holds. Returns false if the process ends first. Panics if this takes too long.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let since = Instant::now();
        while !done(self) {
            if self.has_ended() {
                return done(self);
            }
            assert!(since.elapsed() < 2 * PATIENCE, "no {what} after {:?}\n{}", since.elapsed(), self.stderr());
            std::thread::sleep(PAUSE);
        }
        true
    }

    pub fn sample(&mut self) {
        if self.sampled.elapsed() >= SAMPLED {
            self.sampled = Instant::now();
            self.meters.iter_mut().for_each(Meter::sample);
        }
    }

    /// Returns true if the first step is done.
    pub fn steps(&self) -> bool {
        self.stderr().contains("first step done")
    }

    pub fn stderr(&self) -> String {
        self.running().stderr()()
    }

    pub fn take_meters(&mut self) -> Vec<Meter> {
        std::mem::take(&mut self.meters)
    }

    /// Waits until the process and all ranks seen so far have ended.
    #[track_caller]
    pub fn end(mut self) -> ProgramOutput {
        let running = self.running.take().expect("it ends once");
        let ended = running.wait(2 * PATIENCE);
        let since = Instant::now();
        while self.processes.iter().any(|&rank| is_alive(rank)) {
            assert!(
                since.elapsed() < PATIENCE / 2,
                "ranks outlive the launcher by {:?}\n{}",
                since.elapsed(),
                ended.stderr
            );
            std::thread::sleep(PAUSE);
        }
        ended
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it has not ended")
    }
}

impl Drop for Process {
    /// Kills the ranks too, because a killed launcher cannot end them.
    fn drop(&mut self) {
        drop(self.running.take());
        let ours =
            |rank: u32| fs::read_to_string(format!("/proc/{rank}/comm")).is_ok_and(|name| name.trim() == "trireme");
        self.processes.iter().filter(|&&rank| ours(rank)).for_each(|&rank| signal(rank as i32, libc::SIGKILL));
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time since the start of the meter.
    at: Duration,
    /// Anonymous and shared memory in KiB. Mapped files do not count, because the system loads and drops their pages as it likes.
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

/// A measured quantity in the first and in the last quarter of the samples.
#[derive(Clone, Copy, Debug)]
pub struct Change<T> {
    pub first: T,
    pub last: T,
}

/// The resource use of a process over time.
#[derive(Clone, Copy, Debug)]
pub struct ResourceUse {
    /// Time from the first sample after the warm-up to the last.
    pub time: Duration,
    /// Median of the memory in KiB in each of the two quarters.
    pub memory: Change<u64>,
    /// Maximum of the memory in KiB over all samples.
    pub peak: u64,
    /// Minimum number of open descriptors in each quarter. Unlike a maximum, it ignores files that are open only briefly.
    pub descriptors: Change<u64>,
    /// Minimum number of threads in each quarter.
    pub threads: Change<u64>,
}

impl Meter {
    pub fn new(process: u32) -> Self {
        Self { process, start: Instant::now(), samples: Vec::new() }
    }

    /// Takes a sample, unless the process is gone.
    pub fn sample(&mut self) {
        let at = self.start.elapsed();
        self.samples.extend(sample(self.process, at));
    }

    /// Returns the time of the last sample, measured from the meter's start.
    pub fn age(&self) -> Duration {
        self.samples.last().map_or(Duration::ZERO, |sample| sample.at)
    }

    /// Returns the resource use after the warm-up, or `None` if there are too few samples.
    pub fn resource_use(&self, warm_up: Duration) -> Option<ResourceUse> {
        let from = self.samples.iter().position(|sample| sample.at >= warm_up)?;
        let warm = &self.samples[from..];
        let quarter = warm.len() / 4;
        if quarter < 3 {
            return None;
        }
        let (head, tail) = (&warm[..quarter], &warm[warm.len() - quarter..]);
        let change = |of: fn(&[Sample]) -> u64| Change { first: of(head), last: of(tail) };
        Some(ResourceUse {
            time: warm[warm.len() - 1].at - warm[0].at,
            memory: change(|part| median(part.iter().map(|sample| sample.memory).collect())),
            peak: warm.iter().map(|sample| sample.memory).max().unwrap_or(0),
            descriptors: change(|part| part.iter().map(|sample| sample.descriptors).min().unwrap_or(0)),
            threads: change(|part| part.iter().map(|sample| sample.threads).min().unwrap_or(0)),
        })
    }
}

impl ResourceUse {
    pub fn growth(&self) -> f64 {
        self.memory.last as f64 / self.memory.first as f64 - 1.0
    }

    /// Returns true if memory has grown by at most 1 % and descriptors and threads have not grown.
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
fn growth_is_detected_and_peaks_are_ignored() {
    let meter = |memory: fn(u64) -> u64, descriptors: fn(u64) -> u64| {
        let sample =
            |s| Sample { at: Duration::from_secs(s), memory: memory(s), descriptors: descriptors(s), threads: 4 };
        Meter { process: 0, start: Instant::now(), samples: (0..100).map(sample).collect() }
    };
    let flat =
        |memory, descriptors| meter(memory, descriptors).resource_use(Duration::from_secs(20)).unwrap().is_flat();
    assert!(flat(|s| if s < 20 { 10 * s } else { 1000 }, |_| 30));
    assert!(flat(|s| if s % 5 == 0 { 1500 } else { 1000 }, |s| 30 + s % 2));
    assert!(!flat(|s| 1000 + s / 4, |_| 30), "growth of 1.5 % must be found");
    assert!(!flat(|_| 1000, |s| 30 + s / 60));
    assert!(meter(|_| 1, |_| 1).resource_use(Duration::from_secs(95)).is_none());
}
