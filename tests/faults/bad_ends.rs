//! Failures during a run, tried with the real binary: disks, numbers, data, ranks and threads.
//!
//! Every rank ends in reasonable time with a message that names the cause, and no incomplete file remains. `sweep.rs`
//! tries more failures at many moments.

use std::fs::{self, OpenOptions};
use std::path::Path;

use comm::{Comm, World};
use loaders::{Dataset, Job, Loader, Options, Order, Pipeline};

use support::disk::{Disk, with_permission_to_mount};
use support::images::DIGITS;
use support::program::{
    PATIENCE, assert_gone, events, files, logged, on_ranks, remove_at_once, run, signal, start, trireme,
    with_file_limit,
};
use support::small_run::{IN_TIME, RECIPE, SmallRun};
use support::weights::model_at;

/// A file-size limit has the effect of a full disk on any machine and without root: writes beyond the limit fail.
#[test]
fn a_disk_that_fills_while_training() {
    let setting = SmallRun::new();
    for ranks in [0, 2] {
        // 12,000 units are enough for MPI's own files, but not for a model of 13.1 MB
        let mut command = with_file_limit(ranks, 12_000, env!("CARGO_BIN_EXE_trireme"));
        command.args(setting.args(&["--set", "model=lenet", "--set", "epochs=1"]));
        start(command).wait(PATIENCE).failed(1, &["model.h5", "file size limit", "ulimit -f"]);
        setting.assert_no_model();
        assert_eq!(files(&setting.out), ["metrics.jsonl", "recipe.toml"]);
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// If its output folder is removed, the run ends at once, not when it writes the next checkpoint in ten minutes.
#[test]
fn a_folder_that_is_removed_ends_the_run() {
    let setting = SmallRun::new();
    for ranks in [0, 2] {
        let mut command = on_ranks(ranks, env!("CARGO_BIN_EXE_trireme"));
        command.args(setting.args(&["--set", "epochs=100000", "--set", "checkpoint.every=10m"]));
        let mut running = start(command);
        running.until_logged(&setting.out, 3);
        remove_at_once(&setting.out);
        running.wait(PATIENCE).failed(1, &["output folder was ", &setting.out]);
        assert!(!Path::new(&setting.out).exists(), "the output folder exists again");
    }
}

/// The folder with the checkpoints may be renamed. The message then names the new path.
#[test]
fn a_folder_that_is_renamed_ends_the_run_and_is_found() {
    let setting = SmallRun::new();
    let mut running = setting.start(2, &["--set", "epochs=100000", "--set", "checkpoint.every=10m"]);
    running.until_logged(&setting.out, 3);
    let renamed = setting.folder.at("renamed");
    fs::rename(&setting.out, &renamed).unwrap();
    let found = fs::canonicalize(&renamed).unwrap();
    running.wait(PATIENCE).failed(1, &[&setting.out, &format!("--out {} --resume auto", found.display())]);
    assert!(!Path::new(&setting.out).exists(), "the output folder exists again");
    let lock = fs::read(found.join(".trireme-lock")).unwrap();
    assert!(lock.is_empty(), "the lock describes a run that has ended: {}", String::from_utf8_lossy(&lock));
}

/// A program started by nohup ignores SIGHUP. The run must then continue after a SIGHUP.
#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    let setting = SmallRun::new();
    let mut command = on_ranks(0, "sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_trireme")]);
    command.args(setting.args(&["--set", "epochs=100000"]));
    let mut running = start(command);
    running.until_logged(&setting.out, 3);
    signal(running.id() as i32, libc::SIGHUP);
    running.until_logged(&setting.out, logged(&setting.out, "\n") + 4);
    signal(running.id() as i32, libc::SIGTERM);
    running.wait(PATIENCE).failed(75, &["stopped after step", "SIGTERM"]);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["--help"][..], &["train", "--help"]] {
        let ended = trireme(0, args).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("stdout: No space"), "{said}");
    }
}

/// The trace cannot be written because its path is a folder. The run completes without it.
#[test]
fn a_trace_that_cannot_be_written_in_the_end() {
    let setting = SmallRun::new();
    let ended = setting.train(0, &["--max-steps", "2", "--trace", &setting.out]).succeeded();
    let warnings: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("warning: ")).collect();
    let named = warnings.iter().filter(|line| line.contains("trace") && line.contains(&setting.out)).count();
    assert_eq!(named, 1, "{warnings:?}");
    assert_eq!(events(&setting.out, "end").len(), 1);
    assert!(files(&setting.out).contains(&"model.h5".to_string()));
}

#[test]
fn a_disk_that_is_full() {
    with_permission_to_mount("bad_ends::a_disk_that_is_full", || {
        let mut setting = SmallRun::new();
        let disk = Disk::mount(setting.folder.at("disk"), "1m").expect("a tmpfs");
        setting.out = disk.at("out");
        // the disk is too small from the start; sweep.rs tests a disk that fills during training
        setting.train(2, &[]).failed(1, &[&setting.out, "no space left", "checkpoint takes", "--out"]);
        assert!(!Path::new(&setting.out).exists());
    });
}

/// In the second epoch the learning rate is larger than any f32. The checkpoint of the first epoch must remain.
#[test]
fn a_loss_that_is_not_finite() {
    let setting = SmallRun::new();
    let jump = RECIPE.replace("kind = \"constant\"", "kind = \"step\"\nmilestones = [1]\ngamma = 1e42");
    let recipe = setting.folder.write("jump.toml", &jump);
    let args = ["train", &recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "1"];
    for ranks in [0, 2] {
        run(ranks, &args).failed(1, &["step 7 ", "not finite", "good checkpoint", "base_lr"]);
        assert_eq!(files(&setting.out), ["checkpoints/step-00000006.h5", "metrics.jsonl", "recipe.toml"]);
        let kept = model_at(Path::new(&setting.out).join("checkpoints/step-00000006.h5"));
        assert_eq!((kept.epoch, kept.step), (1, 6));
        assert!(kept.layers.iter().flat_map(|l| &l.tensors).all(|t| t.2.iter().all(|v| v.is_finite())));
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// A step can make the weights infinite or NaN although its own loss is finite.
#[test]
fn weights_that_are_not_finite() {
    let setting = SmallRun::new();
    let more = ["--set", "schedule.base_lr=1e39", "--max-steps", "1"];
    for ranks in [0, 2] {
        setting.train(ranks, &more).failed(1, &["step 1 ", "not finite"]);
        assert_eq!(files(&setting.out), ["metrics.jsonl", "recipe.toml"]);
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// `normalize` makes the values so large that a batch variance overflows f32, while the loss stays finite. The run must
/// end, because the running variance would stay infinite.
#[test]
fn statistics_that_are_not_finite() {
    let setting = SmallRun::new();
    let far = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.5, 1e-21)\"]"));
    for ranks in [0, 2] {
        setting
            .train(ranks, &["--set", "model=resnet20", "--set", &far[0], "--set", &far[1]])
            .failed(1, &["step 1 ", "not finite", "losses are finite"]);
        assert_eq!(files(&setting.out), ["metrics.jsonl", "recipe.toml"]);
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// The codecs exact, int8 and ternary cannot encode infinite or NaN gradients. One message names the parameter, and all
/// ranks end.
#[test]
fn gradients_that_are_not_finite_end_all_ranks_by_name() {
    for codec in ["exact", "int8", "ternary"] {
        for ranks in [1, 2] {
            let setting = SmallRun::new();
            let codec_set = format!("reduce.codec={codec}");
            let more = ["--set", &codec_set, "--set", "schedule.base_lr=1e18"];
            let named = format!("reduce.codec = \"{codec}\"");
            setting.train(ranks, &more).failed(1, &["gradient of parameter ", "NaN", &named]);
            setting.assert_no_model();
        }
    }
}

/// A rank that reads a mapped page beyond the new end of its shard gets SIGBUS. One or both ranks must report this
/// before the run ends.
#[test]
fn a_shard_cut_short_while_it_is_read() {
    let setting = SmallRun::new();
    let running = setting.endless(2);
    for number in 0..4 {
        OpenOptions::new().write(true).open(setting.images.shard("train", number)).unwrap().set_len(0).unwrap();
    }
    let ended = running.wait(PATIENCE);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("byte offset ")).collect();
    assert!((1..=2).contains(&lines.len()), "at most one line per rank:\n{}", ended.stderr);
    for line in lines {
        assert!(line.starts_with("rank ") && line.contains(": shard ") && line.contains(".tfrecord"), "{line}");
    }
    setting.assert_no_model();
}

#[test]
fn the_death_of_a_rank_and_an_interrupt_end_all_ranks() {
    for number in [libc::SIGKILL, libc::SIGINT] {
        let setting = SmallRun::new();
        let running = setting.endless(2);
        let ranks = running.ranks();
        assert_eq!(ranks.len(), 2, "{ranks:?}");
        signal(if number == libc::SIGKILL { ranks[1] } else { running.id() } as i32, number);
        let ended = running.wait(IN_TIME);
        assert!(!ended.status.success(), "{}", ended.stderr);
        assert_gone(&ranks);
        // a killed rank may leave a hidden incomplete file, but every file with the name of a model must be complete
        for file in files(&setting.out).iter().filter(|file| file.ends_with(".h5")) {
            model_at(Path::new(&setting.out).join(file));
        }
        assert!(!Path::new(&setting.out).join("model.h5").exists());
    }
}

const CASE: &str = "TRIREME_TEST_PANIC";

/// The message with which the loader thread of rank 1 panics.
const DEFECT: &str = "the order has a defect";

/// An order of samples that fills five jobs and then panics on the loader's thread. The field is the number of jobs so
/// far.
struct Defect(u64);

impl Order for Defect {
    fn fill(&mut self, job: &mut Job) -> bool {
        assert!(self.0 < 5, "{DEFECT}");
        (job.epoch, job.step, job.worker) = (0, self.0, 0);
        job.ids.clear();
        job.ids.push(self.0);
        self.0 += 1;
        true
    }
}

/// The test below starts this on each rank. The loader thread of rank 1 panics while the other ranks wait for rank 1.
#[test]
#[ignore = "the ranks' side of a_panic_in_a_loader_thread_of_one_rank"]
fn ranks_with_a_defect() {
    let Ok(data) = std::env::var(CASE) else { return };
    comm::install_panic_hook();
    let comm = Comm::launch();
    if comm.world().unwrap().rank == 1 {
        let dataset = Dataset::open(&data).unwrap();
        let pipeline = Pipeline::new(&[], DIGITS, &dataset.manifest, 0).unwrap();
        let split = dataset.split("train").unwrap().into();
        let mut loader = Loader::start(split, pipeline, Box::new(Defect(0)), Options::default()).unwrap();
        // the panic is caught in its thread and becomes a data error
        while loader.next().map_err(|error| comm::die(1, &error.to_string())).is_ok() {}
    }
    let waited = comm.run("sum that rank 1 never joins", World::barrier);
    unreachable!("this rank was not ended: {waited:?}");
}

#[test]
fn a_panic_in_a_loader_thread_of_one_rank() {
    let setting = SmallRun::new();
    let mut command = on_ranks(3, std::env::current_exe().unwrap());
    command.args(["bad_ends::ranks_with_a_defect", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CASE, &setting.data);
    let ended = start(command).wait(PATIENCE);
    ended.failed(1, &["rank 1: ", "loader thread 0", DEFECT, "bug in trireme"]);
}
