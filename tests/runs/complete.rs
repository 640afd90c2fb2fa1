//! Runs that are already complete, that are started from their own recipe.toml, that end before the first step, whose
//! checkpoints are late, or that continue for more epochs than planned.

use std::f64::consts::PI;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use support::images::DIGITS;
use support::mentions;
use support::program::{PATIENCE, compile_c, events, files, numbers, run, start, trireme};
use support::setting::Setting;
use support::weights::{model, model_at};

/// A recipe with four steps per epoch.
const RECIPE: &str = r#"
epochs = 2
batch = 8
workers = 2
schedule.base_lr = 0.01
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [32, 16])
}

fn contents(out: &str) -> Vec<(String, Vec<u8>, SystemTime)> {
    let of = |name: String| {
        let path = Path::new(out).join(&name);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        (name, fs::read(&path).unwrap(), written)
    };
    files(out).into_iter().map(of).collect()
}

#[test]
fn resuming_a_complete_run_changes_nothing() {
    let setting = setting();
    let out = setting.trained("out", 1, &[]);
    let before = contents(&out);
    for ranks in [0, 2] {
        let ended = setting.train("out", ranks, &["--resume", "auto"]).succeeded();
        let [run, model] = [format!("{out}: complete, 8 steps: "), format!("{out}/model.h5")];
        mentions(&ended.stdout, &[&run, &model, "--set epochs=N --extend-epochs\n"]);
        assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
        assert!(contents(&out) == before, "{:?}", files(&out));
    }
    // a missing `end` event in the log means that the run may have been stopped before the model was complete
    let log = fs::read_to_string(setting.out("out/metrics.jsonl")).unwrap();
    let cut: String = log.lines().filter(|line| !line.contains("\"end\"")).map(|line| format!("{line}\n")).collect();
    fs::write(setting.out("out/metrics.jsonl"), cut).unwrap();
    setting.resumed("out", 1, &[]);
    assert_eq!(events(&out, "end").len(), 1);
    // resuming with `--max-steps` equal to the steps done does nothing; without it, the run continues
    let part = setting.trained("part", 1, &["--max-steps", "4"]);
    setting.train("part", 1, &["--resume", "auto", "--max-steps", "4"]).succeeded();
    assert_eq!(events(&part, "start").len(), 1);
    setting.resumed("part", 1, &[]);
    assert_eq!(events(&part, "step").len(), 8);
}

#[test]
fn the_recipe_in_a_runs_folder_names_the_run() {
    let setting = setting();
    let out = setting.trained("out", 1, &["--max-steps", "3"]);
    let recipe = format!("{out}/recipe.toml");
    let train = |more: &[&str]| start(trireme(0, &[&["train", &recipe], more].concat())).wait(PATIENCE);
    train(&[]).failed(2, &[&out, "is not empty", "--resume auto"]);
    fs::remove_file(setting.out("out/model.h5")).unwrap();
    train(&["--resume", "auto"]).succeeded();
    assert_eq!(events(&out, "step").len(), 8);
}

#[test]
fn zero_steps_write_the_first_weights() {
    let setting = setting();
    setting.trained("one", 1, &["--max-steps", "0"]);
    setting.trained("two", 2, &["--max-steps", "0"]);
    assert!(setting.model("one") == setting.model("two"));
    let model = model(&setting.out("one"));
    assert_eq!((model.step, model.epoch), (0, 0));
    // a run that continues from the model of step 0 computes the same result as a run from the start, on any number of
    // ranks
    setting.resumed("one", 2, &[]);
    setting.trained("whole", 1, &[]);
    assert!(setting.model("one") == setting.model("whole"));
}

#[test]
fn late_checkpoints_are_reported_once() {
    let setting = setting();
    let ended = setting.train("out", 1, &["--set", "checkpoint.every=1 steps"]).succeeded();
    let told = ended.stderr.matches("still being written").count();
    let all = events(&setting.out("out"), "checkpoint").len() == 8;
    assert_eq!(told, usize::from(!all), "{}", ended.stderr);
}

/// A killed process keeps its locks until its last thread has ended, so a resume must wait for the lock.
#[test]
fn a_resume_waits_for_the_lock_of_a_killed_run() {
    let setting = setting();
    let out = setting.trained("out", 1, &["--max-steps", "3"]);
    fs::remove_file(setting.out("out/model.h5")).unwrap();
    let program = setting.folder.at("ending");
    compile_c("tests/runs/ending.c", &program, &["-Wall", "-Wextra", "-Werror", "-pthread"]);
    let lock = Path::new(&out).join(".trireme-lock");
    let mut holder = Command::new(program);
    let mut holder = holder.arg(&lock).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_string();
    let stat = read(&format!("/proc/{}/stat", holder.id()));
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let name = serde_json::json!({
        "host": read("/proc/sys/kernel/hostname"), "boot": read("/proc/sys/kernel/random/boot_id"),
        "process": holder.id(), "ticks": ticks, "since": 0, "job": null,
    });
    fs::write(&lock, name.to_string()).unwrap();
    let mut running = setting.start("out", 1, &["--resume", "auto"]);
    // a run that does not wait for the lock fails or trains in this time
    std::thread::sleep(Duration::from_secs(2));
    assert!(!running.has_ended());
    assert_eq!(events(&out, "step").len(), 3);
    // the holder ends at the end of its input
    drop(holder.stdin.take());
    running.wait(PATIENCE).succeeded();
    assert_eq!(events(&out, "step").len(), 8);
    holder.wait().unwrap();
}

/// A recipe with six steps per epoch.
const DECAYING: &str = r#"
epochs = 2
batch = 8
workers = 2
optimizer.momentum = 0.9
schedule.kind = "cosine"
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

const LONGER: [&str; 5] = ["--resume", "auto", "--set", "epochs=4", "--extend-epochs"];

fn decaying() -> Setting {
    Setting::new(DECAYING, DIGITS, [48, 16])
}

fn rates(out: &str) -> Vec<f64> {
    numbers(out, "step", "lr")
}

fn cosine(part: f64) -> f64 {
    0.001 * (1.0 + (PI * part).cos())
}

#[track_caller]
fn assert_rates(out: &str, part: impl Fn(f64) -> f64) {
    let got = rates(out);
    let want = (0..got.len()).map(|step| cosine(part(step as f64)));
    let off = got.iter().zip(want.clone()).position(|(got, want)| (got - want).abs() > 1e-12);
    assert_eq!(off, None, "got {got:?}, expected {:?}", want.collect::<Vec<_>>());
}

/// The run is extended in the middle of its decay, stopped again, and resumed with the same command. The rates follow
/// one curve, and the weights equal those of a run without the second stop.
#[test]
fn the_remaining_decay_is_stretched() {
    let setting = decaying();
    for out in ["whole", "parts"] {
        setting.train(out, 1, &["--max-steps", "6"]).succeeded();
    }
    setting.train("whole", 2, &LONGER).succeeded().says(&["note: ", "epochs 2 -> 4", "step 6 ", "stretched"]);
    let whole = setting.out("whole");
    assert_eq!(rates(&whole).len(), 24);
    assert_rates(&whole, |step| if step < 6.0 { step / 12.0 } else { 0.5 + 0.5 * (step - 6.0) / 18.0 });
    setting.train("parts", 1, &[&LONGER[..], &["--max-steps", "9"]].concat()).succeeded();
    // the same command does not extend the run again, and without the flag the extended run continues
    let again = setting.train("parts", 1, &[&LONGER[..], &["--max-steps", "15"]].concat()).succeeded().stderr;
    assert!(!again.contains("epochs 2 -> 4"), "{again}");
    setting.train("parts", 2, &["--resume", "auto", "--set", "epochs=4"]).succeeded();
    assert_eq!(setting.digest("whole"), setting.digest("parts"));
    assert!(fs::read_to_string(setting.out("parts/recipe.toml")).unwrap().contains("stretched = [1, 2]"));
}

#[test]
fn a_complete_run_can_be_extended() {
    let setting = decaying();
    let out = setting.trained("out", 1, &[]);
    let told = setting.train("out", 1, &["--resume", "auto"]).succeeded().stdout;
    assert!(told.contains("--extend-epochs"), "{told}");
    setting.train("out", 1, &LONGER).succeeded().says(&["note: ", "(lr 0)", "4 epochs"]);
    assert_eq!((rates(&out).len(), events(&out, "eval").len(), events(&out, "end").len()), (24, 4, 1));
    assert_rates(&out, |step| if step < 12.0 { step / 12.0 } else { step / 24.0 });
    let model = model_at(setting.out("out/model.h5"));
    assert_eq!((model.step, model.epoch), (24, 4));
    // training with the run's recipe reproduces it
    let again = setting.out("again");
    run(0, &["train", &format!("{out}/recipe.toml"), "--threads", "1", "--out", &again]).succeeded();
    assert_eq!((setting.digest("again"), rates(&again)), (setting.digest("out"), rates(&out)));
    // the old model is kept under another name
    let aside = model_at(setting.out("out/aside-model.h5"));
    assert_eq!(aside.step, 12);
}

#[test]
fn other_rates_stay_and_shorter_runs_are_refused() {
    let setting = decaying();
    let constant = ["--set", "schedule.kind=constant"];
    let out = setting.trained("out", 1, &constant);
    let ended = setting.train("out", 1, &[&LONGER[..], &constant].concat()).succeeded();
    ended.says(&["note: ", "step 12 ", "the recipe (lr 0.002)"]);
    assert_eq!(rates(&out), [0.002; 24]);
    let train = |more: &[&str]| setting.train("out", 1, &[&constant, more].concat());
    train(&["--resume", "auto", "--set", "epochs=3", "--extend-epochs"])
        .failed(2, &["--extend-epochs", "4 epochs", "only 3"]);
    train(&["--resume", "auto", "--set", "epochs=9"]).failed(2, &["epochs: 4 ", " 9 ", "--extend-epochs"]);
    let other = ["--resume", "auto", "--set", "epochs=9", "--set", "seed=7", "--extend-epochs"];
    train(&other).failed(2, &["seed: 1 ", " 7 "]);
    assert_eq!(train(&["--set", "epochs=9", "--extend-epochs"]).status.code(), Some(2));
}
