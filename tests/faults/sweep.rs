//! Many faults at many moments: ranks that are killed, stopped or interrupted, and files that are damaged, removed or
//! do not fit on the disk.
//!
//! Each fault must end the run in time with a message and without an incomplete file, and the run must be able to
//! resume. `make test-faults` runs this.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::disk::{Disk, with_permission_to_mount};
use support::program::{PATIENCE, Running, assert_gone, checkpoints, events, longer, remove_at_once, signal};
use support::small_run::{IN_TIME, SHARDS, SmallRun};

const RANKS: usize = 3;

/// A fault in a running training.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL to a rank, this many milliseconds after it has started.
    KillAfter(usize, u64),
    /// SIGKILL to a rank in the middle of the steps.
    Kill(usize),
    /// SIGKILL to all ranks while a checkpoint is written.
    KillWriting,
    /// SIGSTOP to a rank, without SIGCONT.
    Stop(usize),
    /// SIGINT to all ranks, twice in quick succession.
    InterruptTwice,
    /// Damaged bytes in each record of a shard.
    Corrupt,
    /// All training shards are truncated while ranks read them.
    Truncate,
    /// The output folder is removed.
    Remove,
    /// The disk with the output folder becomes completely full.
    Fill,
    /// The disk has only enough space for the log when a signal asks for the last checkpoint.
    FillAndStop,
    /// The disk has only enough space for the log when the model is written.
    FillForTheModel,
}

/// Bytes that stay free on the disk for [`Fault::FillAndStop`] and [`Fault::FillForTheModel`]: enough for the log of a
/// short run, too few for a model.
const LOG: u64 = 512 << 10;

impl Fault {
    fn fills(self) -> bool {
        matches!(self, Self::Fill | Self::FillAndStop | Self::FillForTheModel)
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::FillForTheModel => &["--stall-warn", "1s", "--stall-abort", "10s", "--max-steps", "60"],
            _ => &["--stall-warn", "1s", "--stall-abort", "10s"],
        }
    }

    /// Causes the fault. Returns words that one line of stderr must contain. The list is empty if the ranks end without
    /// a message about the fault. Returns `None` if the run was already over.
    fn strike(self, case: &SmallRun, running: &mut Running, disk: Option<&Disk>) -> Option<&'static [&'static str]> {
        let ranks = running.ranks();
        if !matches!(self, Self::KillAfter(..) | Self::KillWriting) {
            running.until("third step", || case.steps() >= 3);
        }
        let parts: &'static [&'static str] = match self {
            Self::KillAfter(rank, ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                signal(ranks[rank] as i32, libc::SIGKILL);
                &[]
            }
            Self::Kill(rank) => {
                signal(ranks[rank] as i32, libc::SIGKILL);
                &[]
            }
            Self::KillWriting => {
                let folder = Path::new(&case.out).join("checkpoints");
                let writing = || {
                    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                    entries.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(".tmp"))
                };
                let since = Instant::now();
                while !writing() {
                    assert!(since.elapsed() < longer(PATIENCE), "no checkpoint was being written");
                }
                ranks.iter().for_each(|&id| signal(id as i32, libc::SIGKILL));
                &[]
            }
            Self::Stop(rank) => {
                signal(ranks[rank] as i32, libc::SIGSTOP);
                &["sign of life", "--stall-abort"]
            }
            Self::InterruptTwice => {
                for _ in 0..2 {
                    ranks.iter().for_each(|&id| signal(id as i32, libc::SIGINT));
                }
                &[]
            }
            Self::Corrupt => {
                let file = OpenOptions::new().write(true).open(case.images.shard("train", 0)).unwrap();
                let length = file.metadata().unwrap().len();
                for at in (100..length).step_by(200) {
                    file.write_at(&[0xa5; 3], at).unwrap();
                }
                &["rank ", "train-00000", "record"]
            }
            Self::Truncate => {
                for number in 0..SHARDS {
                    OpenOptions::new()
                        .write(true)
                        .open(case.images.shard("train", number))
                        .unwrap()
                        .set_len(0)
                        .unwrap();
                }
                &["rank ", "shard ", "byte offset "]
            }
            Self::Remove => {
                remove_at_once(&case.out);
                &["rank 0: ", "checkpoints", "output folder was ", "--out"]
            }
            Self::Fill => {
                // a checkpoint that fails frees its space, so the disk is filled again and again
                for _ in 0..10 {
                    disk.iter().for_each(|disk| drop(disk.top_up()));
                    std::thread::sleep(Duration::from_millis(100));
                }
                &["o space left"]
            }
            Self::FillAndStop => {
                disk.iter().for_each(|disk| disk.fill_but(LOG));
                signal(running.id() as i32, libc::SIGUSR1);
                &["o space left", "checkpoints/step-"]
            }
            Self::FillForTheModel => {
                disk.iter().for_each(|disk| disk.fill_but(LOG));
                // after the last step, the model may have been written before the disk was full
                if case.steps() >= 60 {
                    return None;
                }
                &["o space left", "model.h5"]
            }
        };
        Some(parts)
    }
}

#[test]
#[ignore = "minutes: make test-faults"]
fn every_fault_ends_a_run_that_can_resume() {
    use Fault::*;
    let early = [0, 100, 200, 350, 600, 1000].into_iter().flat_map(|ms| [KillAfter(0, ms), KillAfter(1, ms)]);
    let killed = [Kill(0), Kill(1), Kill(2), KillWriting, KillWriting, KillWriting, Stop(0), Stop(2), InterruptTwice];
    let faults: Vec<_> = early.chain(killed).chain([Corrupt, Truncate, Remove]).collect();
    assert_eq!(faults.len(), 24);
    faults.into_iter().for_each(try_fault);
}

#[test]
#[ignore = "minutes: make test-faults"]
fn the_sweep_of_full_disks() {
    with_permission_to_mount("sweep::the_sweep_of_full_disks", || {
        [Fault::Fill, Fault::FillAndStop, Fault::FillForTheModel].into_iter().for_each(try_fault);
    });
}

fn try_fault(fault: Fault) {
    assert!((0..5).any(|_| ends_in_time(fault)), "{fault:?}: each of five runs was over before it");
}

/// Starts a run, causes the fault, and checks how the run ends. Returns false if the run was over before the fault.
fn ends_in_time(fault: Fault) -> bool {
    use Fault::*;
    let mut case = SmallRun::long();
    let disk = fault.fills().then(|| Disk::mount(case.folder.at("disk"), "40m").expect("a tmpfs"));
    if let Some(disk) = &disk {
        case.out = disk.at("out");
    }
    let data = read_shards(&case);
    let mut running = case.start(RANKS, fault.arguments());
    let ranks = all_there(&mut running);
    let Some(parts) = fault.strike(&case, &mut running, disk.as_ref()) else { return false };
    let since = Instant::now();
    // a run whose disk is too full only for the model continues to its last step before it fails
    let ended = running.wait(if matches!(fault, FillForTheModel) { PATIENCE } else { IN_TIME });
    let took = since.elapsed();
    // two interrupts in quick succession may arrive as one, which stops the run regularly
    let stopped = !matches!(fault, InterruptTwice) && ended.status.code() == Some(75);
    assert!(!ended.status.success() && !stopped, "{fault:?}: {}", ended.stderr);
    assert_gone(&ranks);
    let said: Vec<_> = ended.stderr.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
    let (enough, most) = if parts.is_empty() { (0, usize::MAX) } else { (1, RANKS) };
    assert!((enough..=most).contains(&said.len()), "{fault:?}: lines with {parts:?}: {said:?} in:\n{}", ended.stderr);
    disk.iter().for_each(|disk| disk.clear());
    data.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    case.assert_whole();
    resume(&case, fault);
    let message = said.last().filter(|_| !parts.is_empty()).map_or("(the launcher says it)", |line| line);
    eprintln!("{fault:?}: ended after {:.1} s, all files complete, resumed. {message}", took.as_secs_f64());
    true
}

/// Waits until the launcher has started all ranks and returns their process ids.
fn all_there(running: &mut Running) -> Vec<u32> {
    let since = Instant::now();
    loop {
        let ranks = running.ranks();
        if ranks.len() == RANKS {
            return ranks;
        }
        assert!(since.elapsed() < longer(PATIENCE), "the launcher has started only {} ranks", ranks.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_shards(case: &SmallRun) -> Vec<(PathBuf, Vec<u8>)> {
    let shards = (0..SHARDS).map(|number| case.images.shard("train", number));
    shards.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[track_caller]
fn resume(case: &SmallRun, fault: Fault) {
    let newest = checkpoints(&case.out).last().copied().unwrap_or(0);
    let steps = (newest + 3).to_string();
    let ended = case.start(2, &["--resume", "auto", "--max-steps", &steps]).wait(PATIENCE);
    assert!(ended.status.success(), "{fault:?}: {}", ended.stderr);
    assert!(Path::new(&case.out).join("model.h5").exists(), "{fault:?}");
    let end = events(&case.out, "end");
    assert_eq!(end.last().map(|e| e["step"].clone()), Some((newest + 3).into()), "{fault:?}");
}
