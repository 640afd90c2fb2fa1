//! Stops the real binary with signals to the program or to mpirun, and with time limits. Each stop leaves a checkpoint,
//! exit code 75 and a message that says how to resume, except a second SIGINT, which ends the run at once. A resumed
//! run has the same bits as an undisturbed one.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use formats::checkpoint::StateFile;

use support::images::DIGITS;
use support::program::{
    PATIENCE, PATIENT_MPIRUN, ProgramOutput, events, files, is_alive, is_ignored, logged, longer, numbers, run, sets,
    signal, signal_mask, start,
};
use support::setting::Setting;
use support::small_run::IN_TIME;

/// A recipe with five steps per epoch. Its 100,000 epochs take longer than any test.
const RECIPE: &str = r#"
epochs = 100000
batch = 10
workers = 2
optimizer.momentum = 0.9
schedule.base_lr = 0.0001
reduce.codec = "exact"
"#;

/// Checks that the newest checkpoint is complete and matches the last step in the log. Returns this step.
#[track_caller]
fn stopped_at(out: &str) -> u64 {
    let names = files(out);
    assert!(!names.iter().any(|name| name.ends_with("tmp")), "{names:?}");
    let newest = names.iter().filter(|name| name.starts_with("checkpoints/step-")).max().expect("a checkpoint");
    let progress = StateFile::read(&Path::new(out).join(newest)).unwrap().progress;
    assert_eq!(events(out, "step").last().unwrap()["step"], progress.step);
    assert!(events(out, "end").is_empty());
    progress.step
}

#[test]
fn usr1_to_mpirun_stops_and_the_run_resumes_to_the_same_bits() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let out = setting.out("parts");
    // under nohup, child processes ignore SIGHUP
    let third = if !is_ignored(libc::SIGHUP) { (0, libc::SIGHUP, "SIGHUP") } else { (0, libc::SIGINT, "SIGINT") };
    let signals = [(2, libc::SIGUSR1, "SIGUSR1"), (0, libc::SIGTERM, "SIGTERM"), third, (1, libc::SIGUSR1, "SIGUSR1")];
    for (ranks, number, name) in signals {
        let before = events(&out, "step").len();
        let mut running = setting.start("parts", ranks, &["--resume", "auto"]);
        running.until("step", || logged(&out, "\"step\",") > before + 5);
        signal(running.id() as i32, number);
        let ended = running.wait(IN_TIME).failed(75, &["stopped after step", name, "--resume auto", "step-"]);
        let step = stopped_at(&out);
        assert!(step > before as u64, "{step}\n{}", ended.stderr);
        // `trireme runs` lists the run as stopped at once, not only when its log is old
        let listed = run(0, &["runs", &out]).succeeded().stdout;
        assert!(listed.contains(&format!("stopped, step {step} of 500000")), "{listed}");
    }
    let last = (stopped_at(&out) + 20).to_string();
    setting.train("parts", 2, &["--resume", "auto", "--max-steps", &last]).succeeded();
    setting.train("whole", 1, &["--max-steps", &last]).succeeded();
    setting.assert_same_bits("parts", "whole");
    let numbers = |name, event, field: &str| {
        let events = events(&setting.out(name), event);
        events.iter().map(|e| (e["step"].clone(), e[field].clone())).collect::<Vec<_>>()
    };
    for (event, field) in [("step", "loss"), ("eval", "top1")] {
        assert_eq!(numbers("whole", event, field), numbers("parts", event, field));
    }
}

/// A dry run has nothing to save, so Ctrl-C ends it as usual.
#[test]
fn a_dry_run_leaves_signals_alone() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let mut running = setting.start("out", 0, &["--dry-run", "--set", "model=lenet"]);
    let status = Path::new("/proc").join(running.id().to_string()).join("status");
    let mut caught = 0;
    while !running.has_ended() {
        caught |= signal_mask(&status, "SigCgt");
    }
    assert_eq!(caught & (1 << (libc::SIGINT - 1)), 0, "{caught:x}");
    running.wait(PATIENCE).succeeded();
}

/// oneDNN's kernels use the stack pointer for other data. A signal handler that interrupts them would overwrite memory.
#[test]
fn threads_that_compute_leave_signals_to_others() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let running = setting.under_way("out", 0, &["--set", "epochs=100000"]);
    let hangup = (!is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP);
    let all = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1].into_iter().chain(hangup);
    let ours = all.fold(0u64, |mask, signal| mask | 1 << (signal - 1));
    let process = Path::new("/proc").join(running.id().to_string());
    assert_eq!(
        signal_mask(&process.join("status"), "SigBlk") & ours,
        ours,
        "the main thread computes, so it must block the signals"
    );
    let threads = fs::read_dir(process.join("task"))
        .unwrap()
        .map(|task| signal_mask(&task.unwrap().path().join("status"), "SigBlk"));
    assert!(threads.map(|mask| mask & ours).any(|mask| mask == 0), "some thread must accept the signals");
    signal(running.id() as i32, libc::SIGTERM);
    running.wait(IN_TIME).failed(75, &["SIGTERM"]);
}

/// Open MPI's mpirun gives its ranks about a second between SIGTERM and SIGKILL, which is enough for this network. The
/// test makes it wait longer, because a busy machine needs more time.
#[test]
fn term_to_mpirun_leaves_a_checkpoint() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let mut command = setting.command("out", 2, &["--threads", "1"]);
    command.env(PATIENT_MPIRUN.0, PATIENT_MPIRUN.1);
    let mut running = start(command);
    running.until_logged(&setting.out("out"), 3);
    signal(running.id() as i32, libc::SIGTERM);
    let ended = running.wait(IN_TIME);
    assert!(!ended.status.success(), "{}", ended.stderr);
    let step = stopped_at(&setting.out("out"));
    assert!(step >= 2);
    let more = (step + 50).to_string();
    setting.train("out", 1, &["--resume", "auto", "--max-steps", &more]).succeeded();
}

/// Starts a run, and sends SIGUSR1 during its first evaluation. Waits for the end of the run.
fn stopped_while_it_scores(setting: &Setting, name: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
    let out = setting.out(name);
    // if this test was suspended for so long that the evaluation is complete, tries again
    for _ in 0..5 {
        let mut running = setting.start(name, ranks, more);
        running.until("epoch", || logged(&out, "\"epoch\",") > 0);
        signal(running.id() as i32, libc::SIGUSR1);
        let ended = running.wait(IN_TIME);
        if events(&out, "eval").is_empty() {
            return ended;
        }
        fs::remove_dir_all(&out).unwrap();
    }
    panic!("the signal did not end the evaluation in five runs");
}

/// If a signal arrives during an evaluation, the score is dropped. The resumed run computes it again.
#[test]
fn a_signal_during_the_evaluation() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 10_000]);
    for ranks in [0, 2] {
        let name = format!("out{ranks}");
        stopped_while_it_scores(&setting, &name, ranks, &[]).failed(75, &["stopped after step 5", "SIGUSR1"]);
        assert_eq!(stopped_at(&setting.out(&name)), 5);
    }
    let ended = setting.train("out0", 2, &["--resume", "auto", "--max-steps", "5"]);
    ended.succeeded();
    let evals = events(&setting.out("out0"), "eval");
    assert_eq!((evals.len(), evals[0]["count"].as_u64()), (1, Some(10_000)));
    // the resumed run has not trained, so the log keeps the epoch's line with the speed of the first run
    let speeds = numbers(&setting.out("out0"), "epoch", "img_per_s");
    assert!(speeds.len() == 1 && speeds[0] > 0.0, "{speeds:?}");
    // a new folder does not have the line yet
    let from = format!("{}/checkpoints/step-00000005.h5", setting.out("out2"));
    setting.train("fresh", 0, &["--resume", &from, "--max-steps", "5"]).succeeded();
    let losses = [setting.out("out0"), setting.out("fresh")].map(|out| numbers(&out, "epoch", "loss"));
    assert!(losses[0].len() == 1 && losses[0] == losses[1], "{losses:?}");
}

/// `--max-steps` may end a run within an epoch.
#[test]
fn a_signal_during_the_evaluation_of_a_part_of_an_epoch() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 10_000]);
    let (out, part) = (setting.out("out"), ["--max-steps", "3"]);
    stopped_while_it_scores(&setting, "out", 0, &part).failed(75, &["stopped after step 3", "SIGUSR1"]);
    setting.train("out", 0, &[&["--resume", "auto"][..], &part].concat()).succeeded();
    let speeds = numbers(&out, "epoch", "img_per_s");
    assert!(speeds.len() == 1 && speeds[0] > 0.0, "{speeds:?}");
    assert_eq!(events(&out, "eval").len(), 1);
}

/// A layer with 19 million parameters. With momentum, a checkpoint has about 150 MB.
const WIDE: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
    { name = "flatten", op = "flatten" },
    { name = "wide", op = "linear", features = 24000, relu = true },
    { name = "fc", op = "linear", features = "classes" },
]
"#;

/// The checkpoint is slow enough that ranks notice the wait, but faster than a run estimates before its first
/// checkpoint.
#[test]
fn a_stop_with_a_large_checkpoint_names_its_reason() {
    let setting = Setting::new(&format!("model = \"net.toml\"\n{RECIPE}"), DIGITS, [50, 20]);
    setting.folder.write("net.toml", WIDE);
    let keys = sets(&["reduce.codec=float", "eval.every=1000"]);
    let limited = setting.train("limit", 2, &[&keys[..], &["--time-limit", "6s"]].concat());
    limited.failed(75, &["stopped after step", "the end of --time-limit is near"]);
    let running = setting.under_way("term", 2, &keys);
    running.ranks().into_iter().for_each(|rank| signal(rank as i32, libc::SIGTERM));
    let ended = running.wait(PATIENCE).failed(75, &["stopped after step", "SIGTERM"]);
    for text in ["probably being ended", "starts from the beginning"] {
        assert!(!ended.stderr.contains(text), "{}", ended.stderr);
    }
}

/// The signals arrive in a step that takes much longer than this test needs. A single SIGINT would let the step finish.
#[test]
fn a_second_interrupt_leaves_at_once() {
    let setting = Setting::new(RECIPE, DIGITS, [6_000, 20]);
    let out = setting.out("out");
    let slow = sets(&["model=resnet20", "batch=6000", "workers=100"]);
    let mut running = setting.start("out", 0, &slow);
    running.until("start", || Path::new(&out).join("metrics.jsonl").exists());
    signal(running.id() as i32, libc::SIGINT);
    running.until_taken(libc::SIGINT);
    assert!(is_alive(running.id()));
    // the handlers of signals that follow each other within microseconds may run at the same time, and then both count as the
    // first one, so another signal may be needed
    for _ in 0..3 {
        if !running.has_ended() {
            signal(running.id() as i32, libc::SIGINT);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // 130 and not 75: the run has not waited for the end of the step
    let ended = running.wait(PATIENCE);
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
    assert!(events(&out, "step").is_empty());
}

/// Runs that would take hours must end soon after their time limit. The tests of `train/stop.rs` check without a clock
/// how much must still fit before a limit.
#[test]
fn limits_of_time_end_runs_in_time() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for (ranks, limit, slurm, reason) in
        [(0, "4s", None, "--time-limit"), (2, "0.1m", None, "--time-limit"), (2, "1h", Some(6), "Slurm job")]
    {
        let name = format!("out-{ranks}-{limit}");
        let environment: Vec<_> =
            slurm.iter().map(|seconds| ("SLURM_JOB_END_TIME", (now() + seconds).to_string())).collect();
        let trace = setting.out(&format!("trace-{ranks}-{limit}.json"));
        let more = ["--time-limit", limit, "--trace", &trace];
        let mut command = setting.command(&name, ranks, &more);
        command.args(["--threads", "1"]).envs(environment);
        let ended = start(command).wait(PATIENCE).failed(75, &["stopped after step", reason]);
        assert!(ended.took < longer(Duration::from_secs(6 + 15)), "{name}: {:?}", ended.took);
        assert!(Path::new(&trace).exists(), "a stopped run has a trace, too");
        stopped_at(&setting.out(&name));
        // the last step ends before the limit, and the rest of the time is for the checkpoint. If the machine was suspended
        // during the start or a step of a few milliseconds, this cannot be checked
        let times = numbers(&setting.out(&name), "step", "t");
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let (last, limit) = (times.last().unwrap(), if limit == "4s" { 4.0 } else { 6.0 });
        let was_suspended = times[0] > limit || longest > 1.0;
        assert!(*last < limit || was_suspended, "{name}: the last step ended after {last} s");
    }
}

#[test]
fn an_invalid_time_limit() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let ended = setting.train("out", 0, &["--time-limit", "soon"]);
    ended.failed(2, &["--time-limit", "\"1h30m\"", "got \"soon\""]);
}
