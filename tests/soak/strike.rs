//! Faults put into a process of a series: those that it must go on through, and those that it must end with.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::Draws;

use crate::fault::{Fault, one_of};
use crate::leg::Leg;
use crate::place::Place;
use crate::preload::{Done, NoSpace, Trouble};
use crate::training::Training;
use support::disk::Disk;
use support::program::{Ended, signal};

/// What a fault is put into.
pub struct Target<'a> {
    /// What is trained.
    pub training: &'a Training,
    /// Where.
    pub place: &'a Place,
    /// The disk of OUT, if it is small.
    pub disk: Option<&'a Disk>,
}

/// What came of a fault.
pub struct Outcome {
    /// How the process ended; nothing if it goes on.
    pub ended: Option<Ended>,
    /// From the fault until it had ended, or went on.
    pub took: Duration,
    /// For people.
    pub what: String,
}

/// How a process must end.
struct Expected {
    code: Option<i32>,
    /// What one line of stderr holds.
    parts: Vec<String>,
}

impl Expected {
    /// With any failure: the launcher alone can speak.
    fn any() -> Self {
        Self { code: None, parts: Vec::new() }
    }

    fn saying(code: Option<i32>, parts: &[&str]) -> Self {
        Self { code, parts: parts.iter().map(|part| part.to_string()).collect() }
    }

    #[track_caller]
    fn check(&self, fault: Fault, ended: &Ended) {
        let code = self.code.is_none_or(|code| ended.status.code() == Some(code));
        let said = |line: &str| self.parts.iter().all(|part| line.contains(part));
        let said = self.parts.is_empty() || ended.stderr.lines().any(said);
        let Self { code: expected, parts } = self;
        assert!(code && said, "{fault:?}: {}, expected {expected:?} and {parts:?} in:\n{}", ended.status, ended.stderr);
    }
}

impl Target<'_> {
    /// Puts a fault into a process that must go on, and waits until it does.
    pub fn survive(&self, fault: Fault, leg: &mut Leg, draws: &mut Draws) -> Outcome {
        let begin = Instant::now();
        let what = match fault {
            Fault::Pause => self.pause(leg, draws),
            Fault::SlowReads => {
                let read_ms = 2 + draws.below(40);
                let count = |done: Done| done.slow_reads;
                let count = self.trouble(Trouble { read_ms, ..Trouble::default() }, leg, draws, count);
                format!("{count} reads took {read_ms} ms longer")
            }
            Fault::SlowWrites => {
                let write_ms = 2 + draws.below(40);
                let count = |done: Done| done.slow_writes;
                let count = self.trouble(Trouble { write_ms, ..Trouble::default() }, leg, draws, count);
                format!("{count} writes took {write_ms} ms longer")
            }
            _ => self.no_room(leg),
        };
        Outcome { ended: None, took: begin.elapsed(), what }
    }

    fn pause(&self, leg: &mut Leg, draws: &mut Draws) -> String {
        let ranks = leg.ranks();
        if ranks.is_empty() {
            return "no rank is there any more".into();
        }
        let rank = one_of(draws, &ranks);
        let time = Duration::from_millis(500 + u64::from(draws.below(3500)));
        signal(rank as i32, libc::SIGSTOP);
        std::thread::sleep(time);
        signal(rank as i32, libc::SIGCONT);
        format!("process {rank} for {:.1} s", time.as_secs_f64())
    }

    /// Makes trouble for some seconds, and until it was made at all; says how often it was made.
    fn trouble(&self, trouble: Trouble, leg: &mut Leg, draws: &mut Draws, count: fn(Done) -> u64) -> u64 {
        let preload = &self.place.preload;
        let before = count(preload.done());
        preload.make(trouble);
        std::thread::sleep(Duration::from_millis(2000 + u64::from(draws.below(3000))));
        leg.until("slow read or write", |_| count(preload.done()) > before);
        preload.make(Trouble::default());
        count(preload.done()) - before
    }

    /// Until the log says that a checkpoint could not be written.
    fn no_room(&self, leg: &mut Leg) -> String {
        let log = self.place.log();
        let length = || fs::metadata(&log).map_or(0, |about| about.len());
        let before = length();
        self.place.preload.make(Trouble { no_space: NoSpace::Models, ..Trouble::default() });
        let failed = leg.until("failed checkpoint", |_| tail(&log, before).contains("\"error\":\""));
        self.place.preload.make(Trouble::default());
        if failed { "one was not written, and the run said so".into() } else { "the run ended".into() }
    }

    /// Puts in a fault that a process must end with, and waits for that.
    pub fn end(&self, fault: Fault, mut leg: Leg, draws: &mut Draws) -> Outcome {
        let begin = Instant::now();
        let (expected, spoiled) = match fault {
            Fault::CorruptShard => self.spoil(draws),
            _ => (self.put(fault, &mut leg, draws), None),
        };
        let ended = leg.end();
        let took = begin.elapsed();
        // here the shard becomes whole again
        let whose = spoiled.map_or(String::new(), |spoiled| format!("{}: ", spoiled.name));
        if fault == Fault::FullDisk {
            self.place.preload.make(Trouble::default());
            self.disk.iter().for_each(|disk| disk.clear());
        }
        self.place.tidy();
        let what = if ended.status.success() {
            "came too late, the training was over".into()
        } else {
            expected.check(fault, &ended);
            format!("{whose}ended after {:.1} s with {}", took.as_secs_f64(), ended.status)
        };
        Outcome { ended: Some(ended), took, what }
    }

    /// Signals, or a full disk.
    fn put(&self, fault: Fault, leg: &mut Leg, draws: &mut Draws) -> Expected {
        let ranks = leg.ranks();
        // a rank, or whoever is there before the ranks are
        let one = if ranks.is_empty() { leg.launcher() } else { one_of(draws, &ranks) };
        match fault {
            Fault::KillRank | Fault::KillEarly => signal(one as i32, libc::SIGKILL),
            Fault::KillLauncher => signal(leg.launcher() as i32, libc::SIGKILL),
            Fault::KillWriting => {
                let folder = Path::new(&self.place.out).join("checkpoints");
                leg.until("checkpoint under way", |_| is_writing(&folder));
                leg.ranks().iter().for_each(|&rank| signal(rank as i32, libc::SIGKILL));
            }
            Fault::Terminate => {
                signal(one as i32, libc::SIGTERM);
                return Expected::saying(Some(75), &["stopped after step", "--resume auto"]);
            }
            Fault::FullDisk => {
                self.fill(leg);
                return Expected::saying(None, &["o space left"]);
            }
            _ => signal(leg.launcher() as i32, libc::SIGTERM),
        }
        Expected::any()
    }

    /// A corrupt shard of the training split.
    fn spoil(&self, draws: &mut Draws) -> (Expected, Option<Spoiled>) {
        let shards = self.training.images.manifest.splits["train"].shards.len();
        let shard = Spoiled::new(self.training.images.shard("train", draws.below(shards as u32) as usize));
        (Expected::saying(Some(1), &[&shard.name, "record "]), Some(shard))
    }

    /// Takes all room, and what a checkpoint under way gives back.
    fn fill(&self, leg: &mut Leg) {
        let Some(disk) = self.disk else {
            return self.place.preload.make(Trouble { no_space: NoSpace::Always, ..Trouble::default() });
        };
        leg.until("end on a full disk", |leg| {
            drop(disk.top_up());
            leg.has_ended()
        });
    }
}

/// A shard with a flipped byte in each record; as it was when dropped.
struct Spoiled {
    name: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Spoiled {
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

impl Drop for Spoiled {
    fn drop(&mut self) {
        // in place: who has it mapped sees it whole again
        let file = OpenOptions::new().write(true).open(&self.path);
        let done = file.and_then(|file| file.write_all_at(&self.bytes, 0));
        done.unwrap_or_else(|e| eprintln!("{} stays corrupt: {e}", self.path.display()));
    }
}

/// Whether a checkpoint is being written: it has a hidden name until it is whole.
fn is_writing(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".step-"))
}

/// What a file has from a place on.
fn tail(path: &Path, from: u64) -> String {
    let Ok(file) = fs::File::open(path) else { return String::new() };
    let length = file.metadata().map_or(0, |about| about.len());
    let mut bytes = vec![0; length.saturating_sub(from) as usize];
    let read = file.read_at(&mut bytes, from).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}
