//! One start of a training program, with or without a launcher, and its ranks, until the program ends or a fault ends
//! it.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::meter::Meter;
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
