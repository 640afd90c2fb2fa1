//! Runs that are already complete, that are started from their own recipe.toml, that end before the first step, or
//! whose checkpoints are late.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use support::images::DIGITS;
use support::mentions;
use support::program::{PATIENCE, compile_c, events, files, start, trireme};
use support::setting::Setting;
use support::weights::model;

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

/// Returns every file with its bytes and modification time.
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
