//! One process of a series of trainings with all its ranks, from its start to the fault that ends it.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::fault::Fault;
use crate::meter::Meter;
use crate::place::Place;
use crate::training::Training;
use support::program::{Ended, PATIENCE, Running, is_alive, signal};

/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two samples of what its ranks hold.
const SAMPLED: Duration = Duration::from_secs(1);

/// How it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Ranks; 0: without mpirun.
    pub ranks: usize,
    /// Whether records are read, not mapped.
    pub reads: bool,
}

/// See the module.
pub struct Leg {
    running: Option<Running>,
    how: How,
    begun: SystemTime,
    /// The last fault that it went on through.
    survived: Option<Fault>,
    /// All processes of ranks that were seen.
    processes: Vec<u32>,
    meters: Vec<Meter>,
    sampled: Instant,
}

impl How {
    /// For people.
    pub fn text(self) -> String {
        let io = if self.reads { "read" } else { "mmap" };
        if self.ranks == 0 { format!("1 process, {io}") } else { format!("{} ranks, {io}", self.ranks) }
    }
}

impl Leg {
    /// Starts it.
    pub fn start(training: &Training, how: How, place: &Place, more: &[&str]) -> Self {
        let io = if how.reads { "loader.io=read" } else { "loader.io=mmap" };
        let begun = SystemTime::now();
        let running = training.start(how.ranks, place, &[&["--set", io, "--resume", "auto"], more].concat());
        let (processes, meters) = (Vec::new(), Vec::new());
        Self { running: Some(running), how, begun, survived: None, processes, meters, sampled: Instant::now() }
    }

    /// How it was started.
    pub fn how(&self) -> How {
        self.how
    }

    /// Notes a fault that it went on through.
    pub fn survived(&mut self, fault: Fault) {
        self.survived = Some(fault);
    }

    /// The last of these faults.
    pub fn last_survived(&self) -> Option<Fault> {
        self.survived
    }

    /// When it was started.
    pub fn begun(&self) -> SystemTime {
        self.begun
    }

    /// The launcher's process, or the one that runs without it.
    pub fn launcher(&self) -> u32 {
        self.running().id()
    }

    /// The ranks' processes that are there by now.
    pub fn ranks(&mut self) -> Vec<u32> {
        let ranks = if self.how.ranks == 0 { vec![self.launcher()] } else { self.running().ranks() };
        let new: Vec<u32> = ranks.iter().copied().filter(|rank| !self.processes.contains(rank)).collect();
        self.meters.extend(new.iter().map(|&rank| Meter::new(rank)));
        self.processes.extend(new);
        ranks
    }

    /// Whether it is over.
    pub fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(Running::has_ended)
    }

    /// Waits until `done` holds; gives false if it ends before. Panics if that takes longer than anything should.
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

    /// Samples what the ranks hold, if it is time to.
    pub fn sample(&mut self) {
        if self.sampled.elapsed() >= SAMPLED {
            self.sampled = Instant::now();
            self.meters.iter_mut().for_each(Meter::sample);
        }
    }

    /// Whether it has done a step.
    pub fn steps(&self) -> bool {
        self.stderr().contains("first step done")
    }

    /// What it has printed to stderr so far.
    pub fn stderr(&self) -> String {
        self.running().stderr()()
    }

    /// What was sampled of each rank, and no more samples.
    pub fn take_meters(&mut self) -> Vec<Meter> {
        std::mem::take(&mut self.meters)
    }

    /// Waits for its end and for that of all ranks that were seen.
    #[track_caller]
    pub fn end(mut self) -> Ended {
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

impl Drop for Leg {
    /// A launcher that was killed cannot end its ranks.
    fn drop(&mut self) {
        drop(self.running.take());
        let ours =
            |rank: u32| fs::read_to_string(format!("/proc/{rank}/comm")).is_ok_and(|name| name.trim() == "trireme");
        self.processes.iter().filter(|&&rank| ours(rank)).for_each(|&rank| signal(rank as i32, libc::SIGKILL));
    }
}
