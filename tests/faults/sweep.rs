//! Many faults at many moments: ranks that are killed, stopped, or interrupted, files that are corrupted, removed or find no room. Each
//! must end the run in time, say what happened, leave no torn file, and let the run resume. `make test-faults` runs it, and counts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::case::{Case, IN_TIME, SHARDS};
use support::disk::Disk;
use support::program::{PATIENCE, Running, assert_gone, events, files, signal};

/// Ranks of the sweep's runs.
const RANKS: usize = 3;

/// What is done to a run under way.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL of a rank, so many milliseconds after it was there.
    KillAfter(usize, u64),
    /// SIGKILL of a rank in the middle of steps.
    Kill(usize),
    /// SIGKILL of all ranks while a checkpoint is written.
    KillWriting,
    /// SIGSTOP of a rank, for good.
    Stop(usize),
    /// SIGINT to all ranks, and again at once.
    InterruptTwice,
    /// A flipped byte in each record of a shard.
    Corrupt,
    /// All training shards are cut short under the ranks' feet.
    Truncate,
    /// The output folder goes away.
    Remove,
    /// The disk of the output folder is full to the last byte.
    Fill,
    /// Room for the log alone, when a signal asks for the last checkpoint.
    FillAndStop,
    /// Room for the log alone, when the model is to be written.
    FillForTheModel,
}

/// More than the log of a short run takes, less than a model.
const LOG: u64 = 512 << 10;

impl Fault {
    /// Whether it needs a small file system.
    fn fills(self) -> bool {
        matches!(self, Self::Fill | Self::FillAndStop | Self::FillForTheModel)
    }

    /// Arguments of the run that it strikes.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::FillForTheModel => &["--stall-warn", "1s", "--stall-abort", "3s", "--max-steps", "60"],
            _ => &["--stall-warn", "1s", "--stall-abort", "3s"],
        }
    }

    /// Does it, and says what a line of stderr must hold; nothing where the launcher alone can speak.
    fn strike(self, case: &Case, running: &mut Running, disk: Option<&Disk>) -> &'static [&'static str] {
        let ranks = running.ranks();
        if !matches!(self, Self::KillAfter(..) | Self::KillWriting) {
            running.until("third step", || case.steps() >= 3);
        }
        match self {
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
                    assert!(since.elapsed() < PATIENCE, "no checkpoint was ever seen under way");
                }
                ranks.iter().for_each(|&id| signal(id as i32, libc::SIGKILL));
                &[]
            }
            Self::Stop(rank) => {
                signal(ranks[rank] as i32, libc::SIGSTOP);
                &["waiting in ", "no sign of life", "--stall-abort"]
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
                &["rank ", "shard ", "cannot read at byte offset"]
            }
            Self::Remove => {
                fs::remove_dir_all(&case.out).unwrap();
                &["rank 0: cannot ", "checkpoints", "output folder was removed", "--out"]
            }
            Self::Fill => {
                // a checkpoint under way leaves room again when it gives up
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
                &["o space left", "model.h5"]
            }
        }
    }
}

/// Every fault, each in a run of its own, and the run resumed after it.
#[test]
#[ignore = "minutes: make test-faults"]
fn the_sweep() {
    use Fault::*;
    let early = [0, 100, 200, 350, 600, 1000].into_iter().flat_map(|ms| [KillAfter(0, ms), KillAfter(1, ms)]);
    let killed = [Kill(0), Kill(1), Kill(2), KillWriting, KillWriting, KillWriting, Stop(0), Stop(2), InterruptTwice];
    let files = [Corrupt, Truncate, Remove, Fill, FillAndStop, FillForTheModel];
    let (mut cases, mut skipped) = (0, 0);
    for fault in early.chain(killed).chain(files) {
        let mut case = Case::new();
        let disk = fault.fills().then(|| Disk::mount(case.folder.at("disk"), "40m"));
        if let Some(None) = disk {
            eprintln!("NOT TESTED: {fault:?}: no permission to mount a tmpfs");
            skipped += 1;
            continue;
        }
        let disk = disk.flatten();
        if let Some(disk) = &disk {
            case.out = disk.at("out");
        }
        let data = kept(&case);
        let mut running = case.start(RANKS, fault.arguments());
        let ranks = all_there(&mut running);
        let parts = fault.strike(&case, &mut running, disk.as_ref());
        let since = Instant::now();
        // that one trains to its end first
        let ended = running.wait(if matches!(fault, FillForTheModel) { PATIENCE } else { IN_TIME });
        let took = since.elapsed();
        // two interrupts at once may come as one, which stops the run in good order
        let stopped = !matches!(fault, InterruptTwice) && ended.status.code() == Some(75);
        assert!(!ended.status.success() && !stopped, "{fault:?}: {}", ended.stderr);
        assert_gone(&ranks);
        let said: Vec<_> = ended.stderr.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
        let (enough, most) = if parts.is_empty() { (0, usize::MAX) } else { (1, RANKS) };
        assert!(
            (enough..=most).contains(&said.len()),
            "{fault:?}: lines with {parts:?}: {said:?} in:\n{}",
            ended.stderr
        );
        disk.iter().for_each(|disk| disk.clear());
        data.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        case.assert_whole();
        resume(&case, fault);
        cases += 1;
        let message = said.last().filter(|_| !parts.is_empty()).map_or("(the launcher says it)", |line| line);
        eprintln!("{fault:?}: ended {:.1} s after, nothing torn, resumed. {message}", took.as_secs_f64());
    }
    eprintln!("{cases} faults: none hung, none left a torn file, all resumed; {skipped} not tested");
    assert_eq!(cases + skipped, 27);
}

/// The ranks' processes, the launcher having started them all.
fn all_there(running: &mut Running) -> Vec<u32> {
    let since = Instant::now();
    loop {
        let ranks = running.ranks();
        if ranks.len() == RANKS {
            return ranks;
        }
        assert!(since.elapsed() < PATIENCE, "the launcher has started {} ranks", ranks.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The shards as they were.
fn kept(case: &Case) -> Vec<(PathBuf, Vec<u8>)> {
    let shards = (0..SHARDS).map(|number| case.images.shard("train", number));
    shards.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Goes on from the last checkpoint, or from the start, and ends well.
#[track_caller]
fn resume(case: &Case, fault: Fault) {
    let newest = files(&case.out)
        .iter()
        .filter_map(|file| file.strip_prefix("checkpoints/step-")?.strip_suffix(".h5")?.parse::<u64>().ok())
        .max()
        .unwrap_or(0);
    let steps = (newest + 3).to_string();
    let ended = case.start(2, &["--resume", "auto", "--max-steps", &steps]).wait(PATIENCE);
    assert!(ended.status.success(), "{fault:?}: {}", ended.stderr);
    assert!(Path::new(&case.out).join("model.h5").exists(), "{fault:?}");
    let end = events(&case.out, "end");
    assert_eq!(end.last().map(|e| e["step"].clone()), Some((newest + 3).into()), "{fault:?}");
}
