//! Causes faults in a process: faults that it must survive, and faults that must end it. One is chosen at random.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::Draws;

use crate::place::{Interference, InterferenceCount, NoSpace, Place};
use crate::process::Process;
use crate::training::Training;
use support::disk::Disk;
use support::program::{ProgramOutput, signal};

/// The run in which a fault is caused.
pub struct Target<'a> {
    pub training: &'a Training,
    pub place: &'a Place,
    /// The small disk of the output folder, if there is one.
    pub disk: Option<&'a Disk>,
}

pub struct Outcome {
    /// How the process ended, or `None` if it continues.
    pub ended: Option<ProgramOutput>,
    /// Time from the fault until the process ended or continued.
    pub took: Duration,
    pub what: String,
}

struct Expected {
    code: Option<i32>,
    /// Parts that one line of stderr must contain.
    parts: Vec<String>,
}

impl Expected {
    /// Accepts any exit code and output. For faults that only the launcher can report.
    fn any() -> Self {
        Self { code: None, parts: Vec::new() }
    }

    fn saying(code: Option<i32>, parts: &[&str]) -> Self {
        Self { code, parts: parts.iter().map(|part| part.to_string()).collect() }
    }

    #[track_caller]
    fn check(&self, fault: Fault, ended: &ProgramOutput) {
        let code = self.code.is_none_or(|code| ended.status.code() == Some(code));
        let said = |line: &str| self.parts.iter().all(|part| line.contains(part));
        let said = self.parts.is_empty() || ended.stderr.lines().any(said);
        let Self { code: expected, parts } = self;
        assert!(code && said, "{fault:?}: {}, expected {expected:?} and {parts:?} in:\n{}", ended.status, ended.stderr);
    }
}

impl Target<'_> {
    /// Causes a fault that the process must survive, and waits until it continues.
    pub fn survive(&self, fault: Fault, process: &mut Process, draws: &mut Draws) -> Outcome {
        let begin = Instant::now();
        let what = match fault {
            Fault::Pause => self.pause(process, draws),
            Fault::SlowReads => {
                let read_ms = 2 + draws.below(40);
                let count = |done: InterferenceCount| done.slow_reads;
                let count = self.interfere(Interference { read_ms, ..Interference::default() }, process, draws, count);
                format!("{count} reads took {read_ms} ms longer")
            }
            Fault::SlowWrites => {
                let write_ms = 2 + draws.below(40);
                let count = |done: InterferenceCount| done.slow_writes;
                let count = self.interfere(Interference { write_ms, ..Interference::default() }, process, draws, count);
                format!("{count} writes took {write_ms} ms longer")
            }
            _ => self.no_room(process),
        };
        Outcome { ended: None, took: begin.elapsed(), what }
    }

    fn pause(&self, process: &mut Process, draws: &mut Draws) -> String {
        let ranks = process.ranks();
        if ranks.is_empty() {
            return "no rank is running any more".into();
        }
        let rank = one_of(draws, &ranks);
        let time = Duration::from_millis(500 + u64::from(draws.below(3500)));
        signal(rank as i32, libc::SIGSTOP);
        std::thread::sleep(time);
        signal(rank as i32, libc::SIGCONT);
        format!("process {rank} for {:.1} s", time.as_secs_f64())
    }

    /// Interferes for some seconds and at least once. Returns how often the library interfered.
    fn interfere(
        &self,
        interference: Interference,
        process: &mut Process,
        draws: &mut Draws,
        count: fn(InterferenceCount) -> u64,
    ) -> u64 {
        let preload = &self.place.preload;
        let before = count(preload.done());
        preload.set(interference);
        std::thread::sleep(Duration::from_millis(2000 + u64::from(draws.below(3000))));
        process.until("slow read or write", |_| count(preload.done()) > before);
        preload.set(Interference::default());
        count(preload.done()) - before
    }

    /// Makes all writes of checkpoints and models fail until the log reports a failed checkpoint.
    fn no_room(&self, process: &mut Process) -> String {
        let log = self.place.log();
        let length = || fs::metadata(&log).map_or(0, |about| about.len());
        let before = length();
        self.place.preload.set(Interference { no_space: NoSpace::Models, ..Interference::default() });
        let failed = process.until("failed checkpoint", |_| tail(&log, before).contains("\"error\":\""));
        self.place.preload.set(Interference::default());
        if failed { "a checkpoint was not written, and the run reported it".into() } else { "the run ended".into() }
    }

    /// Causes a fault that must end the process, and waits for its end.
    pub fn end(&self, fault: Fault, mut process: Process, draws: &mut Draws) -> Outcome {
        let begin = Instant::now();
        let (expected, spoiled) = match fault {
            Fault::CorruptShard => self.spoil(draws),
            _ => (self.put(fault, &mut process, draws), None),
        };
        let ended = process.end();
        let took = begin.elapsed();
        // the value `spoiled` is dropped at the end of this closure, which repairs the shard
        let whose = spoiled.map_or(String::new(), |spoiled| format!("{}: ", spoiled.name));
        if fault == Fault::FullDisk {
            self.place.preload.set(Interference::default());
            self.disk.iter().for_each(|disk| disk.clear());
        }
        self.place.tidy();
        let what = if ended.status.success() {
            "came too late: the training was complete".into()
        } else {
            expected.check(fault, &ended);
            format!("{whose}ended after {:.1} s with {}", took.as_secs_f64(), ended.status)
        };
        Outcome { ended: Some(ended), took, what }
    }

    /// Causes any fatal fault except a damaged shard: sends a signal or fills the disk. Returns the expected end of the process.
    fn put(&self, fault: Fault, process: &mut Process, draws: &mut Draws) -> Expected {
        let ranks = process.ranks();
        // a rank, or the launcher if no rank has started yet
        let one = if ranks.is_empty() { process.launcher() } else { one_of(draws, &ranks) };
        match fault {
            Fault::KillRank | Fault::KillEarly => signal(one as i32, libc::SIGKILL),
            Fault::KillLauncher => signal(process.launcher() as i32, libc::SIGKILL),
            Fault::KillWriting => {
                let folder = Path::new(&self.place.out).join("checkpoints");
                process.until("checkpoint under way", |_| is_writing(&folder));
                process.ranks().iter().for_each(|&rank| signal(rank as i32, libc::SIGKILL));
            }
            Fault::Terminate => {
                signal(one as i32, libc::SIGTERM);
                return Expected::saying(Some(75), &["stopped after step", "--resume auto"]);
            }
            Fault::FullDisk => {
                self.fill(process);
                return Expected::saying(None, &["o space left"]);
            }
            _ => signal(process.launcher() as i32, libc::SIGTERM),
        }
        Expected::any()
    }

    fn spoil(&self, draws: &mut Draws) -> (Expected, Option<DamagedShard>) {
        let shards = self.training.images.manifest.splits["train"].shards.len();
        let shard = DamagedShard::new(self.training.images.shard("train", draws.below(shards as u32) as usize));
        (Expected::saying(Some(1), &[&shard.name, "record "]), Some(shard))
    }

    /// Takes all free space, including what a failing checkpoint frees.
    fn fill(&self, process: &mut Process) {
        let Some(disk) = self.disk else {
            return self.place.preload.set(Interference { no_space: NoSpace::Always, ..Interference::default() });
        };
        process.until("end on a full disk", |process| {
            drop(disk.top_up());
            process.has_ended()
        });
    }
}

/// A shard with a flipped byte in each record. Dropping this repairs it.
struct DamagedShard {
    name: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl DamagedShard {
    fn new(path: PathBuf) -> Self {
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = OpenOptions::new().write(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for at in (100..bytes.len()).step_by(200) {
            file.write_all_at(&[!bytes[at]], at as u64).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { name, path, bytes }
    }
}

impl Drop for DamagedShard {
    fn drop(&mut self) {
        // written in place, so that processes that have mapped the file see the repair
        let file = OpenOptions::new().write(true).open(&self.path);
        let done = file.and_then(|file| file.write_all_at(&self.bytes, 0));
        done.unwrap_or_else(|e| eprintln!("{} could not be repaired: {e}", self.path.display()));
    }
}

fn is_writing(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".step-"))
}

fn tail(path: &Path, from: u64) -> String {
    let Ok(file) = fs::File::open(path) else { return String::new() };
    let length = file.metadata().map_or(0, |about| about.len());
    let mut bytes = vec![0; length.saturating_sub(from) as usize];
    let read = file.read_at(&mut bytes, from).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to one rank.
    KillRank,
    /// SIGKILL to the launcher, or to the process if there is no launcher.
    KillLauncher,
    /// SIGKILL to all ranks while a checkpoint is written.
    KillWriting,
    /// SIGKILL to a rank in its first two seconds.
    KillEarly,
    /// SIGTERM to one rank.
    Terminate,
    /// SIGTERM to the launcher.
    TerminateLauncher,
    /// The disk of the output folder becomes completely full.
    FullDisk,
    /// A flipped byte in each record of a shard.
    CorruptShard,
    /// SIGSTOP to one rank, and SIGCONT after some seconds.
    Pause,
    /// For some seconds, each read from the data set takes longer.
    SlowReads,
    /// For some seconds, each write to the output folder takes longer.
    SlowWrites,
    /// Checkpoints find no space, but the log does, until one checkpoint has failed.
    NoRoomForCheckpoints,
}

impl Fault {
    pub const SURVIVABLE: [Self; 4] = [Self::Pause, Self::SlowReads, Self::SlowWrites, Self::NoRoomForCheckpoints];

    /// The faults that must end a run. The run must then be able to resume. [`Fault::KillEarly`] is not in the list,
    /// because the test causes it only during a resume after one of these faults.
    pub const FATAL: [Self; 7] = [
        Self::KillRank,
        Self::KillLauncher,
        Self::KillWriting,
        Self::Terminate,
        Self::TerminateLauncher,
        Self::FullDisk,
        Self::CorruptShard,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::KillRank => "kill a rank",
            Self::KillLauncher => "kill the launcher",
            Self::KillWriting => "kill while writing",
            Self::KillEarly => "kill at the start",
            Self::Terminate => "SIGTERM to a rank",
            Self::TerminateLauncher => "SIGTERM to mpirun",
            Self::FullDisk => "full disk",
            Self::CorruptShard => "corrupt shard",
            Self::Pause => "stop and continue",
            Self::SlowReads => "slow reads",
            Self::SlowWrites => "slow writes",
            Self::NoRoomForCheckpoints => "no room for checkpoints",
        }
    }
}

pub fn one_of<T: Copy>(draws: &mut Draws, from: &[T]) -> T {
    from[draws.below(from.len() as u32) as usize]
}
