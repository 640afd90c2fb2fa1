//! `trireme sweep` with the real binary. Every combination is trained, a stopped sweep continues, and a table shows the
//! results.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use support::images::DIGITS;
use support::program::{PATIENCE, ProgramOutput, Running, events, mpirun, signal, start, trireme};
use support::setting::Setting;
use support::small_run::RECIPE;

const GRID: [&str; 4] = ["--grid", "optimizer.momentum=0,0.9", "--grid", "seed=1,2"];

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 10])
}

fn begin(setting: &Setting, more: &[&str]) -> Running {
    let out = setting.out("sweep");
    start(trireme(0, &[&["sweep", &setting.recipe, "--data", &setting.data, "--out", &out], more].concat()))
}

#[track_caller]
fn sweep(setting: &Setting, more: &[&str]) -> ProgramOutput {
    begin(setting, more).wait(PATIENCE)
}

#[test]
fn every_combination_is_trained_once() {
    let setting = setting();
    let ended = sweep(&setting, &[&GRID[..], &["--", "--threads", "1", "--quiet"]].concat()).succeeded();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 1 + 4 + 1, "{}", ended.stdout);
    assert!(lines[0].starts_with("momentum  seed  state  steps  best top-1"), "{}", ended.stdout);
    assert!(lines[1..5].iter().all(|line| line.contains("done   12 ")), "{}", ended.stdout);
    assert!(lines[5].starts_with("best: optimizer.momentum=0"), "{}", ended.stdout);
    ended.says(&["training 3 of 4", "optimizer.momentum=0.9 seed=1"]);
    let read = |more: &[&str]| sweep(&setting, &[&GRID[..], more].concat()).succeeded().json_lines();
    let all = read(&["--table", "--json"]);
    for (object, (momentum, seed)) in all.iter().zip([("0", "1"), ("0", "2"), ("0.9", "1"), ("0.9", "2")]) {
        let out = setting.out(&format!("sweep/momentum={momentum},seed={seed}"));
        assert_eq!((object["run"].as_str(), object["state"].as_str()), (Some(out.as_str()), Some("done")));
        assert_eq!((&object["set"]["seed"], &object["digest"]), (&seed.into(), &events(&out, "end")[0]["digest"]));
        assert_eq!(object["last"]["top1"], events(&out, "eval")[1]["top1"]);
        assert!(fs::read_to_string(Path::new(&out).join("recipe.toml")).unwrap().contains(&format!("seed = {seed}\n")));
    }
    let digests = |all: &[Value]| all.iter().map(|object| object["digest"].clone()).collect::<Vec<_>>();
    let again = read(&["--json", "--", "--threads", "1", "--quiet"]);
    assert_eq!(digests(&again), digests(&all));
    assert_eq!(
        events(&setting.out("sweep/momentum=0,seed=1"), "start").len(),
        1,
        "a complete run must not start again"
    );
    let longer = ["--set", "epochs=3", "--", "--threads", "1", "--extend-epochs"];
    let ended = sweep(&setting, &[&GRID[..], &longer].concat()).succeeded();
    assert_eq!(ended.stdout.matches("done   18 ").count(), 4, "{}", ended.stdout);
}

#[test]
fn a_stopped_sweep_continues() {
    let setting = setting();
    let grid = ["--grid", "seed=1,2", "--set", "epochs=100000", "--", "--threads", "1"];
    let mut running = begin(&setting, &grid);
    running.until_logged(&setting.out("sweep/seed=1"), 5);
    signal(running.id() as i32, libc::SIGINT);
    let ended = running.wait(PATIENCE).failed(75, &["stopped", "0 of 2 trainings"]);
    let line = ended.stdout.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with("1     stopped  "), "{}", ended.stdout);
    let last = events(&setting.out("sweep/seed=1"), "checkpoint").last().unwrap()["step"].as_u64().unwrap() + 20;
    let more = ["--max-steps", &last.to_string()].map(String::from);
    let more: Vec<&str> = grid.into_iter().chain(more.iter().map(String::as_str)).collect();
    let ended = begin(&setting, &more).wait(3 * PATIENCE).succeeded();
    assert_eq!(ended.stdout.matches(&format!("done   {last}")).count(), 2, "{}", ended.stdout);
    assert_eq!(events(&setting.out("sweep/seed=1"), "start").len(), 2);
}

/// Ctrl-C in a terminal reaches all foreground processes. The launcher of the ranks must not be one of them.
#[test]
fn one_interrupt_stops_ranks_of_a_launcher_with_a_checkpoint() {
    let setting = setting();
    let (mpirun, options) = mpirun();
    let launch = [&[mpirun.as_str()][..], options, &["-n", "2"]].concat().join(" ");
    let grid = ["--grid", "seed=1,2", "--set", "epochs=100000", "--launch", &launch, "--", "--threads", "1"];
    let mut running = begin(&setting, &grid);
    running.until_logged(&setting.out("sweep/seed=1"), 5);
    signal(-(running.id() as i32), libc::SIGINT);
    let ended = running.wait(2 * PATIENCE).failed(75, &["stopped", "0 of 2 trainings"]);
    assert!(ended.stderr.contains("The checkpoint is "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("training 2 of 2"), "{}", ended.stderr);
    assert!(!Path::new(&setting.out("sweep")).join("seed=2").exists());
}

/// If the recipe does not set `workers`, a training's result depends on the number of ranks at its first start.
#[test]
fn different_numbers_of_workers_are_reported() {
    let setting = setting();
    let (mpirun, options) = mpirun();
    let launch = [&[mpirun.as_str()][..], options, &["-n", "2"]].concat().join(" ");
    let grid = ["--grid", "seed=1,2", "--unset", "workers"];
    let train = ["--", "--threads", "1", "--max-steps", "1"];
    let alone = sweep(&setting, &[&grid[..], &["--only", "0"], &train].concat()).succeeded();
    assert!(!alone.stderr.contains("--set workers=N"), "{}", alone.stderr);
    let ended = sweep(&setting, &[&grid[..], &["--only", "1", "--launch", &launch], &train].concat());
    ended.succeeded().says(&["note: ", "--set workers=N"]);
    let ended = sweep(&setting, &[&grid[..], &["--table"]].concat()).succeeded();
    ended.says(&["warning: ", "workers (1, 2)", "--set workers=N"]);
}

/// The signal may come before the training process has installed its handlers. The second training must not start in
/// any case.
#[test]
fn a_signal_at_any_time_ends_the_sweep() {
    for (number, wait) in [(libc::SIGTERM, 0), (libc::SIGTERM, 10), (libc::SIGINT, 120), (libc::SIGUSR1, 400)] {
        let setting = setting();
        let mut running = begin(&setting, &["--grid", "seed=1,2", "--set", "epochs=100000", "--", "--threads", "1"]);
        let heard = running.stderr();
        running.until("training", || heard().contains("training 1 of 2"));
        std::thread::sleep(Duration::from_millis(wait));
        signal(running.id() as i32, number);
        let ended = running.wait(PATIENCE).failed(75, &["stopped", "0 of 2 trainings"]);
        assert!(!ended.stderr.contains("training 2 of 2"), "after {wait} ms: {}", ended.stderr);
    }
}

#[test]
fn errors_are_reported_before_training_and_a_failure_ends_one_run() {
    let setting = setting();
    sweep(&setting, &["--grid", "schedule.base_lr=0.01,-1"]).failed(2, &["base_lr=-1: ", "schedule.base_lr"]);
    sweep(&setting, &["--grid", "shedule.base_lr=0.01"])
        .failed(2, &["--grid shedule.base_lr=0.01", "unknown key", "\"schedule.base_lr\""]);
    sweep(&setting, &["--grid", "seed=1", "--only", "5"]).failed(2, &["--only 5", "one combination", "--only 0"]);
    sweep(&setting, &["--grid", "seed=1,2", "--only", "2"]).failed(2, &["--only 2", "2 combinations", "0 to 1"]);
    // Another option with a key of the grid would replace its values, or have no effect.
    for (key, more) in [
        ("seed", &["--grid", "seed=1,2", "--", "--set", "seed=7"][..]),
        ("seed", &["--set", "seed=7", "--grid", "seed=1,2"]),
        ("loader.threads", &["--grid", "loader.threads=1,2", "--", "--loader-threads", "7"]),
        ("data", &["--grid", "data=x,y"]),
    ] {
        sweep(&setting, more).failed(2, &[&format!("--grid {key}="), &format!("also has {key}="), "once"]);
    }
    sweep(&setting, &["--grid", "seed=1,2", "--", "--tpu"]).failed(2, &["after `--`", "--tpu"]);
    sweep(&setting, &["--grid", "seed=1,2", "--", "--resume", "auto"])
        .failed(2, &["after `--`", "--resume", "multiple"]);
    assert!(!Path::new(&setting.out("sweep")).exists());
    sweep(&setting, &["--grid", "seed=1", "--launch", "no-such-launcher -n 2"])
        .failed(1, &["cannot start", "no-such-launcher: "]);
    let wild = ["--grid", "schedule.base_lr=1e30,0.01", "--", "--threads", "1", "--max-steps", "3"];
    let ended = sweep(&setting, &wild).failed(1, &["1 of 2 trainings failed"]);
    let states: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(states[..3], ["state", "failed", "done"], "{}", ended.stdout);
}

/// A job array needs a single combination and the command line that trains it elsewhere.
#[test]
fn one_combination_and_its_command_line() {
    let setting = setting();
    let only = ["--only", "3", "--json"];
    let ended = sweep(&setting, &[&GRID[..], &only, &["--", "--threads", "1", "--quiet"]].concat()).succeeded();
    let [object] = &ended.json_lines()[..] else { panic!("{}", ended.stdout) };
    assert_eq!(object["set"], serde_json::json!({"optimizer.momentum": "0.9", "seed": "2"}));
    let listed = sweep(&setting, &[&GRID[..], &["--list", "--", "--quiet"]].concat()).succeeded().stdout;
    let line = listed.lines().nth(3).unwrap();
    assert!(
        line.starts_with("trireme train ") && line.ends_with("--set optimizer.momentum=0.9 --set seed=2 --quiet"),
        "{line}"
    );
    assert_eq!(listed.lines().count(), 4);
    let launched = sweep(&setting, &[&GRID[..], &["--list", "--launch", "mpirun -n 2"]].concat()).succeeded().stdout;
    assert!(launched.lines().all(|line| line.starts_with("mpirun -n 2 trireme train ")), "{launched}");
}
