//! The output folder. A run touches it only if it is recognised as a run's folder, only one run can use it at a time,
//! and links in it are not followed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use support::program::{PATIENCE, Running, checkpoints, events, files, is_alive, logged, signal, start};
use support::setting::Setting;
use support::{images::DIGITS, small_run::RECIPE};

const RESUME: [&str; 6] = ["--resume", "auto", "--set", "epochs=100000", "--set", "checkpoint.every=2 steps"];

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 10])
}

/// Starts a training run that takes longer than any test and waits for its first checkpoint.
#[track_caller]
fn endless(setting: &Setting) -> Running {
    let mut running = setting.start("out", 0, &RESUME);
    let out = setting.out("out");
    running.until("a checkpoint", || logged(&out, "\"checkpoint\"") > 0);
    running
}

fn lock(setting: &Setting) -> std::path::PathBuf {
    Path::new(&setting.out("out")).join(".trireme-lock")
}

/// Changes a run's lock as if the run used another host, boot and job.
fn move_to_another_host(setting: &Setting, job: &str) {
    let text = fs::read_to_string(lock(setting)).unwrap();
    let mut holder: serde_json::Value = serde_json::from_str(&text).unwrap();
    (holder["host"], holder["boot"]) = ("n9".into(), "another".into());
    holder["job"] = serde_json::json!({ "id": job, "restarts": 0 });
    fs::write(lock(setting), holder.to_string()).unwrap();
}

/// Returns a step after the last checkpoint of a paused run.
fn past_its_last_checkpoint(setting: &Setting) -> String {
    (checkpoints(&setting.out("out")).last().unwrap() + 3).to_string()
}

#[test]
fn a_second_run_is_refused_and_a_killed_one_leaves_no_trace() {
    let setting = setting();
    let first = endless(&setting);
    let (id, out) = (first.id(), setting.out("out"));
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let named = format!("process {id} on {}", host.trim());
    for ranks in [0, 2] {
        for more in [&[][..], &["--steal-lock"]] {
            let ended = setting.train("out", ranks, &[&RESUME[..], more].concat());
            ended.failed(2, &[&out, &named, "another --out"]);
        }
    }
    assert!(is_alive(id));
    signal(id as i32, libc::SIGKILL);
    assert!(!first.wait(PATIENCE).status.success());
    assert!(fs::read_to_string(lock(&setting)).unwrap().contains(&id.to_string()), "another holder");
    let at = events(&out, "checkpoint").iter().map(|e| e["step"].as_u64().unwrap()).max().unwrap();
    let end = (at + 9).to_string();
    for ranks in [2, 0] {
        setting.train("out", ranks, &[&RESUME[..], &["--max-steps", &end]].concat()).succeeded();
        assert_eq!(fs::read(lock(&setting)).unwrap(), b"", "the lock must be empty after a regular end");
    }
    assert!(events(&out, "start").last().unwrap()["step"].as_u64().unwrap() >= at);
}

#[test]
fn only_one_of_two_simultaneous_runs_starts() {
    let setting = setting();
    for round in 0..2 {
        let last = (6 * (round + 1)).to_string();
        let more = ["--resume", "auto", "--max-steps", &last];
        let both = [(); 2].map(|()| setting.start("out", 0, &more));
        let ended = both.map(|running| running.wait(PATIENCE));
        let good = ended.iter().filter(|ended| ended.status.success()).count();
        let said: Vec<&str> = ended.iter().map(|ended| ended.stderr.as_str()).collect();
        // both may succeed, if the second run starts after the first is complete
        assert!(good >= 1, "{said:?}");
        for refused in ended.iter().filter(|ended| !ended.status.success()) {
            assert_eq!(refused.status.code(), Some(2), "{said:?}");
            // the run that fails either finds the lock in use, or finds files of the other run after it has found no checkpoint
            let reasons = [" in use by ", "but no checkpoint", "that another run wrote"];
            assert!(reasons.iter().any(|reason| refused.stderr.contains(reason)), "{said:?}");
        }
        let steps: Vec<u64> = events(&setting.out("out"), "step").iter().map(|e| e["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, (1..=6 * (round + 1)).collect::<Vec<u64>>(), "each step must be logged once");
    }
}

#[test]
fn a_run_on_another_host_needs_steal_lock() {
    let setting = setting();
    let first = endless(&setting);
    signal(first.id() as i32, libc::SIGSTOP);
    move_to_another_host(&setting, "77");
    let ended = setting.train("out", 0, &RESUME);
    ended.failed(2, &["on n9, Slurm job 77", "--steal-lock"]);
    let steps = past_its_last_checkpoint(&setting);
    let theft = [&RESUME[..], &["--steal-lock", "--max-steps", &steps]].concat();
    setting.train("out", 0, &theft).succeeded();
    signal(first.id() as i32, libc::SIGCONT);
    // the first run checks its lock before it writes again, and notices the loss
    first.wait(PATIENCE).failed(1, &[&setting.out("out"), "taken over", "--steal-lock"]);
}

/// A run that lost its folder notices this before its next checkpoint is due, and does not write to the other run's log.
#[test]
fn a_run_that_lost_its_folder_ends_within_seconds() {
    let setting = setting();
    // no checkpoint, score or end is due for longer than the test waits, and each of them would notice the loss, too
    let sets = ["epochs=100000", "eval.every=100000", "checkpoint.every=1h"];
    let keys = ["--resume", "auto", "--set", sets[0], "--set", sets[1], "--set", sets[2]];
    let out = setting.trained("out", 0, &[&keys[..], &["--max-steps", "2"]].concat());
    let mut first = setting.start("out", 0, &keys);
    first.until("a step", || logged(&out, "\"event\":\"step\"") > 2);
    signal(first.id() as i32, libc::SIGSTOP);
    move_to_another_host(&setting, "77");
    let steps = past_its_last_checkpoint(&setting);
    setting.train("out", 0, &[&keys[..], &["--steal-lock", "--max-steps", &steps]].concat()).succeeded();
    signal(first.id() as i32, libc::SIGCONT);
    first.wait(PATIENCE).failed(1, &[&out, "taken over", "--steal-lock"]);
    let steps: Vec<u64> = events(&out, "step").iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
    let log = fs::read_to_string(Path::new(&out).join("metrics.jsonl")).unwrap();
    assert!(log.lines().last().unwrap().contains("\"event\":\"end\""), "{log}");
}

#[test]
fn a_requeued_slurm_job_resumes_without_steal_lock() {
    let setting = setting();
    let first = endless(&setting);
    signal(first.id() as i32, libc::SIGSTOP);
    move_to_another_host(&setting, "77");
    let steps = past_its_last_checkpoint(&setting);
    let again = |restarts: &str| {
        let mut command =
            setting.command("out", 0, &[&RESUME[..], &["--threads", "1", "--max-steps", &steps]].concat());
        command.env("SLURM_JOB_ID", "77").env("SLURM_RESTART_COUNT", restarts);
        start(command).wait(PATIENCE)
    };
    again("0").failed(2, &["on n9, Slurm job 77", "--steal-lock"]);
    again("1").succeeded();
    signal(first.id() as i32, libc::SIGCONT);
    first.wait(PATIENCE).failed(1, &[&setting.out("out"), "taken over", "--steal-lock"]);
}

#[test]
fn a_folder_of_other_files_is_not_changed() {
    let setting = setting();
    let mine = setting.out("mine");
    fs::create_dir(&mine).unwrap();
    for (name, text) in [("recipe.toml", "# years of work\n"), ("metrics.jsonl", "{\"event\":\"step\",\"step\":1}\n")] {
        fs::write(Path::new(&mine).join(name), text).unwrap();
    }
    let before = |name: &str| fs::read(Path::new(&mine).join(name)).unwrap();
    let kept = ["recipe.toml", "metrics.jsonl"].map(before);
    for ranks in [0, 2] {
        let ended = setting.train("mine", ranks, &["--resume", "auto"]);
        ended.failed(2, &[&mine, "contains recipe.toml", ".trireme-run", "another --out"]);
    }
    assert_eq!(["recipe.toml", "metrics.jsonl"].map(before), kept);
    let all: Vec<_> = fs::read_dir(&mine).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    // files that other programs have put into the folder are not changed
    let logs = setting.out("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(Path::new(&logs).join("job.log"), "started\n").unwrap();
    setting.train("logs", 0, &["--resume", "auto", "--max-steps", "2"]).succeeded();
    assert_eq!(fs::read_to_string(Path::new(&logs).join("job.log")).unwrap(), "started\n");
}

/// Earlier versions wrote neither the marker nor the lock. A run must accept a folder with a checkpoint but without
/// them, and create both.
#[test]
fn a_checkpoint_identifies_the_folder_of_a_run() {
    let setting = setting();
    let out = setting.trained("out", 0, &["--max-steps", "4"]);
    let marker = Path::new(&out).join(".trireme-run");
    let id = fs::read_to_string(&marker).unwrap();
    setting.train("out", 0, &["--resume", "auto", "--max-steps", "5"]).succeeded();
    assert_eq!(fs::read_to_string(&marker).unwrap(), id, "a run must keep its id");
    fs::remove_file(&marker).unwrap();
    fs::remove_file(lock(&setting)).unwrap();
    setting.train("out", 2, &["--resume", "auto"]).succeeded();
    assert!(marker.is_file() && lock(&setting).is_file());
    assert_eq!(events(&out, "step").len(), 12);
}

#[test]
fn no_link_in_the_folder_is_followed() {
    let setting = setting();
    let victim = setting.folder.write("victim", "precious");
    let out = setting.trained("out", 0, &["--max-steps", "4"]);
    let at = |name: &str| Path::new(&out).join(name);
    // links with the names of temporary files that earlier versions wrote
    for name in [
        ".recipe.toml.tmp",
        ".writable.tmp",
        ".model.h5.tmp",
        ".metrics.jsonl.tmp",
        "checkpoints/.step-00000006.h5.tmp",
    ] {
        symlink(&victim, at(name)).unwrap();
    }
    setting.train("out", 0, &["--resume", "auto", "--max-steps", "6"]).succeeded();
    // puts a hard link and then a symbolic link in the place of the log
    let log = fs::read(at("metrics.jsonl")).unwrap();
    for linked in [false, true] {
        fs::remove_file(at("metrics.jsonl")).unwrap();
        if linked {
            symlink(&victim, at("metrics.jsonl")).unwrap()
        } else {
            fs::hard_link(&victim, at("metrics.jsonl")).unwrap()
        }
        let why = if linked { "symbolic link" } else { "2 names" };
        setting.train("out", 0, &["--resume", "auto"]).failed(1, &["metrics.jsonl", why]);
    }
    fs::remove_file(at("metrics.jsonl")).unwrap();
    fs::write(at("metrics.jsonl"), log).unwrap();
    setting.train("out", 0, &["--resume", "auto"]).succeeded();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let left: Vec<String> =
        files(&out).into_iter().filter(|name| name.ends_with(".tmp") && !at(name).is_symlink()).collect();
    assert_eq!(left, [""; 0]);
}
