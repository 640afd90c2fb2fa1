//! Faults in training runs on more than one rank: stopped or killed ranks, an infinite loss, a FIFO in the data set.
//!
//! Each run must end in time, or continue if nothing was lost, and say what happened. `sweep.rs` tries more faults at
//! many moments.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::images::{DIGITS, Images};
use support::program::{
    PATIENCE, PATIENT_MPIRUN, Running, assert_gone, checkpoints, files, run, signal, start, trireme,
};
use support::small_run::{SmallRun, assert_failed};

/// Starts a run that ends by itself, and stops its second rank with SIGSTOP in the middle of the steps. Returns the run and
/// the process id of the rank.
fn run_with_a_stopped_rank(case: &SmallRun) -> (Running, i32) {
    // if this test was suspended for so long that the run is nearly over, tries a longer run
    for steps in [600, 6_000] {
        let last = steps.to_string();
        let more = ["--stall-warn", "1s", "--set", "checkpoint.every=1h", "--max-steps", &last];
        let running = case.running(3, &more);
        if let Some(&stopped) = running.ranks().get(1) {
            signal(stopped as i32, libc::SIGSTOP);
            if case.steps() + 100 < steps {
                return (running, stopped as i32);
            }
        }
        drop(running);
        fs::remove_dir_all(&case.out).unwrap();
    }
    panic!("every run was over before a rank could be stopped");
}

#[test]
fn a_stopped_rank_is_named_and_continues_after_sigcont() {
    let case = SmallRun::long();
    let (mut running, stopped) = run_with_a_stopped_rank(&case);
    let (text, process) = (running.stderr(), format!("(process {stopped})"));
    let parts = ["warning: ", "1 of 3 ranks", "sign of life", &process];
    // on a busy machine, an earlier warning may name the third rank, too
    let is_named = |text: String| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    running.until("warning", || is_named(text()));
    signal(stopped, libc::SIGCONT);
    let ended = running.wait(PATIENCE).succeeded();
    assert!(ended.stderr.contains("run continues"), "{}", ended.stderr);
    assert!(!Path::new(&case.out).join(".ranks").exists(), "a regular end must remove the heartbeat files");
}

#[test]
fn a_rank_that_stays_stopped_ends_the_run_at_the_limit() {
    let case = SmallRun::long();
    // a rank that does not run for some seconds, because the machine is busy, must not end the run earlier
    let running = case.running(2, &["--stall-warn", "off", "--stall-abort", "10s"]);
    let ranks = running.ranks();
    let since = Instant::now();
    signal(ranks[0] as i32, libc::SIGSTOP);
    let ended = running.wait(PATIENCE);
    assert_failed(&ended, since);
    ended.failed(1, &["1 of 2 ranks", "sign of life", "--stall-abort", "--resume auto"]);
    assert_gone(&ranks);
    case.assert_whole();
}

/// The launcher ends the other ranks. One message says which rank is gone and how to resume.
#[test]
fn a_killed_rank_is_named_once() {
    let kill = |killed: usize| {
        let case = SmallRun::long();
        let mut command = trireme(3, &case.args(&[]));
        command.env(PATIENT_MPIRUN.0, PATIENT_MPIRUN.1);
        let mut running = start(command);
        running.until("checkpoint", || !checkpoints(&case.out).is_empty());
        let victim = running.ranks()[killed];
        signal(victim as i32, libc::SIGKILL);
        let ended = running.wait(PATIENCE);
        assert!(!ended.status.success());
        ended.says(&[&format!("(process {victim}) is gone"), "--resume auto", "/checkpoints/step-"]);
        let last = (checkpoints(&case.out).last().unwrap() + 3).to_string();
        case.start(2, &["--resume", "auto", "--max-steps", &last]).wait(PATIENCE).succeeded();
    };
    // mpirun sleeps for most of the time, so both runs can share the cores
    std::thread::scope(|scope| {
        for killed in [0, 2] {
            scope.spawn(move || kill(killed));
        }
    });
}

#[test]
fn the_watchdog_ignores_working_ranks() {
    let case = SmallRun::long();
    let running = case.running(2, &["--stall-warn", "5s"]);
    // the run lasts longer than the limit of 5 s, but no step does, so there must be no warning
    std::thread::sleep(Duration::from_secs(8));
    signal(running.id() as i32, libc::SIGUSR1);
    let ended = running.wait(PATIENCE).failed(75, &["stopped after step", "SIGUSR1"]);
    assert!(!ended.stderr.contains("warning: "), "{}", ended.stderr);
}

/// One sample overflows f32 when it is normalised. The message names the rank with this sample, whichever codec is
/// used.
#[test]
fn an_infinite_loss_on_one_rank() {
    for codec in ["float", "exact"] {
        let mut case = SmallRun::long();
        let folder = case.folder.path().join("odd");
        case.images =
            Images::edited(&folder, DIGITS, 48, 16, |id, record| record.pixels.fill(if id == 17 { 255 } else { 0 }));
        case.images.manifest.mean = vec![0.0];
        case.images.manifest.std = vec![1e-38];
        case.images.manifest.write(&folder).unwrap();
        case.data = case.images.arg();
        let codec = format!("reduce.codec={codec}");
        let since = Instant::now();
        let ended = case.start(3, &["--set", &codec]).wait(PATIENCE);
        assert_failed(&ended, since);
        let ended = ended.failed(1, &["comes from rank ", "data stats"]);
        assert_eq!(ended.stderr.matches("comes from rank ").count(), 1, "{}", ended.stderr);
    }
}

/// A FIFO in the data set must be refused by name. Opening it would block until another process opens it for writing.
#[test]
fn a_fifo_among_the_data_is_refused_by_name() {
    let case = SmallRun::long();
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
fn startup_checks_are_printed() {
    let case = SmallRun::long();
    let ended = case.start(4, &["--max-steps", "1"]).wait(PATIENCE).succeeded();
    for part in [
        "launch     4 ranks",
        "sums are correct",
        "program, recipe, ",
        "ranks 0-3; cores ",
        "room       ",
        "a checkpoint takes ",
    ] {
        assert_eq!(ended.stderr.matches(part).count(), 1, "{part} in {}", ended.stderr);
    }
    let doctor = run(4, &["doctor"]);
    let library = format!("cpu ({}, ", backend::cpu::library());
    for part in ["ranks 0-3; cores ", &library] {
        assert!(doctor.stdout.contains(part), "{part} in {}{}", doctor.stdout, doctor.stderr);
    }
    // without mpirun, `doctor` reports the number of threads that training would use: one per available core
    let threads = match base::cores::available() {
        1 => "1 thread".to_string(),
        cores => format!("{cores} threads"),
    };
    let alone = run(0, &["doctor"]);
    assert!(alone.stdout.contains(&format!(", {threads}")), "{threads} in {}{}", alone.stdout, alone.stderr);
}

#[test]
fn a_follower_scores_what_appears_and_ends_with_the_model() {
    let case = SmallRun::long();
    let follow = |ranks, more: &[&str]| {
        let args = ["eval", &case.out, "--data", &case.data, "--split", "train", "--follow", "--threads", "1"];
        start(trireme(ranks, &[&args, more].concat()))
    };
    follow(0, &["--once"]).wait(PATIENCE).failed(1, &[&case.out, "no model", "no checkpoint", "--once"]);
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
    let model = format!("{}/model.h5", case.out);
    let alone = run(0, &["eval", &model, "--data", &case.data, "--split", "train", "--json"]).succeeded().json();
    assert_eq!([&alone["top1"], &alone["top5"], &alone["loss"]], [&last["top1"], &last["top5"], &last["loss"]]);
    // scored models are not scored again
    assert!(follow(0, &[]).wait(PATIENCE).succeeded().stdout.is_empty());
    let once = follow(0, &["--once", "--json"]).wait(PATIENCE).succeeded();
    assert!(once.stdout.contains("\"step\":18"), "{}", once.stdout);
}

/// The second rank runs in another folder, in which the run appears later, as on a network file system.
#[test]
fn a_follower_waits_for_files_that_a_rank_does_not_see_yet() {
    let case = SmallRun::new();
    case.train(0, &[]).succeeded();
    let late = case.folder.path().join("late");
    fs::create_dir(&late).unwrap();
    let args = ["eval", "out", "--data", &case.data, "--split", "train", "--follow", "--threads", "1"];
    let mut command = trireme(1, &args);
    command.current_dir(case.folder.path());
    command.args([":", "-n", "1", "env", "-C"]).arg(&late).arg(env!("CARGO_BIN_EXE_trireme")).args(args);
    let follower = start(command);
    // the second rank needs time to look for the first file
    std::thread::sleep(Duration::from_secs(2));
    std::os::unix::fs::symlink(&case.out, late.join("out")).unwrap();
    let ended = follower.wait(PATIENCE).succeeded();
    assert!(!ended.stderr.contains("skipped"), "{}", ended.stderr);
    let models = files(&case.out).into_iter().filter(|file| file.ends_with(".h5")).count();
    assert_eq!(ended.stdout.lines().count(), models, "{}", ended.stdout);
}

#[test]
fn an_interrupt_ends_a_follower_with_code_0() {
    let case = SmallRun::long();
    fs::create_dir(&case.out).unwrap();
    for stop in [libc::SIGINT, libc::SIGTERM] {
        let args = ["eval", &case.out, "--data", &case.data, "--split", "train", "--follow"];
        let mut follower = start(trireme(0, &args));
        // the program installs the handler of SIGPWR last
        follower.until_caught(&[libc::SIGINT, libc::SIGTERM, libc::SIGPWR]);
        signal(follower.id() as i32, stop);
        follower.wait(PATIENCE).succeeded();
    }
}
