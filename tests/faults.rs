//! Faults put into running trainings on several ranks: ranks that are killed, stopped, or starved, files that are corrupted, removed or
//! find no room. Each case must end in time (or go on, where nothing was lost), say what happened, leave no torn file, and let the run
//! resume. The quick ones run always; `make test-faults` runs the sweep over moments and faults, and counts.

#[path = "support/images.rs"]
mod images;
#[path = "support/program.rs"]
mod program;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use images::{DIGITS, Images};
use program::{Ended, Folder, PATIENCE, Running, assert_gone, events, files, run, signal, start, trireme};

/// A fault must have ended all ranks by then.
const IN_TIME: Duration = Duration::from_secs(15);

/// Ranks of the sweep's runs.
const RANKS: usize = 3;

/// Training shards that [`Images`] makes.
const SHARDS: usize = 4;

const RECIPE: &str = r#"
model = "lenet-caffe"
data = "given with --data"
epochs = 1000
batch = 8
workers = 4

[optimizer]
kind = "sgd"

[schedule]
kind = "constant"
base_lr = 0.001

[augment]
train = ["normalize"]
eval = ["normalize"]
"#;

/// A recipe and a data set of its own for each case.
struct Case {
    folder: Folder,
    images: Images,
    recipe: String,
    out: String,
}

impl Case {
    fn new() -> Self {
        let folder = Folder::new();
        let images = Images::new(&folder.path().join("data"), DIGITS, 48, 16);
        let recipe = folder.write("recipe.toml", RECIPE);
        let out = folder.at("out");
        Self { folder, images, recipe, out }
    }

    fn start(&self, ranks: usize, more: &[&str]) -> Running {
        let data = self.images.arg();
        let often = "checkpoint.every=2 steps";
        let args = ["train", &self.recipe, "--data", &data, "--out", &self.out, "--threads", "1", "--set", often];
        start(trireme(ranks, &[&args, more].concat()))
    }

    /// Under way: some steps are done.
    #[track_caller]
    fn running(&self, ranks: usize, more: &[&str]) -> Running {
        let mut running = self.start(ranks, more);
        running.until("third step", || self.steps() >= 3);
        running
    }

    fn steps(&self) -> usize {
        let text = fs::read_to_string(Path::new(&self.out).join("metrics.jsonl")).unwrap_or_default();
        text.matches("\"event\":\"step\"").count()
    }

    /// All HDF5 files are whole, all lines of the log too.
    #[track_caller]
    fn assert_whole(&self) {
        for file in files(&self.out).iter().filter(|f| f.ends_with(".h5") && !f.contains("/.")) {
            let path = format!("{}/{file}", self.out);
            let scored = run(0, &["eval", &path, "--data", &self.images.arg(), "--split", "train"]);
            assert!(scored.status.success(), "{file} is torn: {}", scored.stderr);
        }
        assert!(events(&self.out, "end").is_empty());
    }
}

/// Ended in time, with a failure.
#[track_caller]
fn assert_failed(ended: &Ended, since: Instant) {
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert!(since.elapsed() < IN_TIME, "{:?}\n{}", since.elapsed(), ended.stderr);
}

#[test]
fn a_stopped_rank_is_named_and_goes_on_when_it_is_woken() {
    let case = Case::new();
    let mut running = case.running(3, &["--stall-warn", "1s", "--max-steps", "60"]);
    let stopped = running.ranks()[1] as i32;
    signal(stopped, libc::SIGSTOP);
    let text = running.stderr();
    running.until("warning", || text().contains("has given no sign of life"));
    signal(stopped, libc::SIGCONT);
    let ended = running.wait(PATIENCE).succeeded();
    let warning = ended.stderr.lines().find(|line| line.contains("no sign of life")).unwrap();
    let parts = ["warning: waiting in ", "1 of 3 ranks not there: rank ", &format!("(process {stopped})")];
    assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
    assert!(ended.stderr.contains("it goes on: "), "{}", ended.stderr);
    assert!(!Path::new(&case.out).join(".ranks").exists(), "a clean end leaves no signs of life");
}

#[test]
fn a_rank_that_stays_stopped_ends_the_run_at_the_limit() {
    let case = Case::new();
    let running = case.running(2, &["--stall-warn", "off", "--stall-abort", "2s"]);
    let ranks = running.ranks();
    let since = Instant::now();
    signal(ranks[0] as i32, libc::SIGSTOP);
    let ended = running.wait(PATIENCE);
    assert_failed(&ended, since);
    ended.failed(
        1,
        &["waiting in ", "1 of 2 ranks not there", "has given no sign of life", "--stall-abort", "--resume auto"],
    );
    assert_gone(&ranks);
    case.assert_whole();
}

#[test]
fn no_watchdog_speaks_of_ranks_at_work() {
    let case = Case::new();
    // a warning after the shortest time in which nothing is wrong; a loaded machine takes its time for a step
    let ended = case.start(2, &["--stall-warn", "5s", "--set", "epochs=2"]).wait(PATIENCE).succeeded();
    assert!(!ended.stderr.contains("warning: "), "{}", ended.stderr);
    assert!(!Path::new(&case.out).join(".ranks").exists());
}

/// One sample of all is beyond f32 once it is normalised: the rank that has it is named, whatever the gradients travel as.
#[test]
fn a_loss_that_is_lost_on_one_rank() {
    for codec in ["float", "exact"] {
        let mut case = Case::new();
        let folder = case.folder.path().join("odd");
        case.images =
            Images::edited(&folder, DIGITS, 48, 16, |id, record| record.pixels.fill(if id == 17 { 255 } else { 0 }));
        case.images.manifest.mean = vec![0.0];
        case.images.manifest.std = vec![1e-38];
        case.images.manifest.write(&folder).unwrap();
        let codec = format!("reduce.codec={codec}");
        let since = Instant::now();
        let ended = case.start(3, &["--set", &codec]).wait(PATIENCE);
        assert_failed(&ended, since);
        let ended = ended.failed(1, &["it comes from rank ", "data stats"]);
        assert_eq!(ended.stderr.matches("it comes from rank").count(), 1, "{}", ended.stderr);
    }
}

/// Opening a FIFO waits for a writer, for good.
#[test]
fn a_fifo_among_the_data_is_refused_by_name() {
    let case = Case::new();
    for file in [case.images.shard("train", 0), loaders::shard::index_path(&case.images.shard("train", 0))] {
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let since = Instant::now();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let ended = case.start(2, &[]).wait(PATIENCE);
        assert_failed(&ended, since);
        ended.failed(1, &[&name]);
        fs::remove_file(&file).unwrap();
        fs::write(&file, kept).unwrap();
    }
}

#[test]
fn the_table_before_the_start() {
    let case = Case::new();
    let ended = case.start(4, &["--max-steps", "1"]).wait(PATIENCE).succeeded();
    for part in [
        "launch     4 rank(s), started by ",
        "; known-answer sums right; equal on all: program, recipe, data set",
        "rank(s) 0-3; cores ",
        "room       ",
        "a checkpoint takes ",
    ] {
        assert_eq!(ended.stderr.matches(part).count(), 1, "{part} in {}", ended.stderr);
    }
    let doctor = run(4, &["doctor"]);
    assert!(doctor.stdout.contains("rank(s) 0-3; cores "), "{}{}", doctor.stdout, doctor.stderr);
}

#[test]
fn a_follower_scores_what_appears_and_ends_with_the_model() {
    let case = Case::new();
    let data = case.images.arg();
    let follow = |ranks, more: &[&str]| {
        let args = ["eval", &case.out, "--data", &data, "--split", "train", "--follow", "--threads", "1"];
        start(trireme(ranks, &[&args, more].concat()))
    };
    follow(0, &["--once"]).wait(PATIENCE).failed(1, &["no model and no checkpoint there yet"]);
    let follower = follow(2, &[]);
    case.start(2, &["--set", "epochs=3", "--set", "checkpoint.keep=50"]).wait(PATIENCE).succeeded();
    let ended = follower.wait(PATIENCE).succeeded();
    let text = fs::read_to_string(Path::new(&case.out).join("metrics-eval.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ended.stdout.lines().count(), lines.len(), "{}", ended.stdout);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["file"], &last["step"]),
        (&"eval".into(), &"model.h5".into(), &18.into()),
        "{text}"
    );
    assert!(lines.len() >= 2 && lines.is_sorted_by_key(|line| line["step"].as_u64()), "{text}");
    let alone =
        run(0, &["eval", &format!("{}/model.h5", case.out), "--data", &data, "--split", "train", "--json"]).succeeded();
    let alone: serde_json::Value = serde_json::from_str(&alone.stdout).unwrap();
    assert_eq!([&alone["top1"], &alone["top5"], &alone["loss"]], [&last["top1"], &last["top5"], &last["loss"]]);
    // what is scored is not scored again
    assert!(follow(0, &[]).wait(PATIENCE).succeeded().stdout.is_empty());
    let once = follow(0, &["--once", "--json"]).wait(PATIENCE).succeeded();
    assert!(once.stdout.contains("\"step\":18"), "{}", once.stdout);
}

#[test]
fn an_interrupt_ends_a_follower_well() {
    let case = Case::new();
    fs::create_dir(&case.out).unwrap();
    let data = case.images.arg();
    for asked in [libc::SIGINT, libc::SIGTERM] {
        let follower = start(trireme(0, &["eval", &case.out, "--data", &data, "--split", "train", "--follow"]));
        // long enough to be past the start, where the signal still has its usual meaning
        std::thread::sleep(Duration::from_secs(2));
        signal(follower.id() as i32, asked);
        follower.wait(PATIENCE).succeeded();
    }
}

/// A file system of its own, unmounted when dropped.
struct Disk(String);

impl Disk {
    /// Mounted at this folder, or nothing where the test may not.
    fn mount(folder: String, size: &str) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let size = format!("size={size}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "trireme-test", &folder]).output();
        done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    /// Fills it up to so many bytes; [`Disk::clear`] makes room again.
    fn fill_but(&self, bytes: u64) {
        let file = self.top_up();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
    }

    /// Takes all room that there is.
    fn top_up(&self) -> fs::File {
        let path = format!("{}/filler", self.0);
        let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        file
    }

    fn clear(&self) {
        fs::remove_file(format!("{}/filler", self.0)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

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
                &["rank 0: cannot ", "checkpoints", "the output folder was removed", "--out"]
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
            case.out = format!("{}/out", disk.0);
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
        let told = said.last().filter(|_| !parts.is_empty()).map_or("(the launcher says it)", |line| line);
        eprintln!("{fault:?}: ended {:.1} s after, nothing torn, resumed. {told}", took.as_secs_f64());
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
