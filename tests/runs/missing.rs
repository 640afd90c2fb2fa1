//! A model path that does not exist. Every command that accepts a model names the missing folder and the models nearby.

use std::fs;
use std::os::unix::fs::symlink;

use support::program::{Folder, PATIENCE, start, trireme};

/// Creates folders with files that are named like models. Later files are newer.
fn setting() -> Folder {
    let folder = Folder::new();
    for (seconds, name) in
        ["runs/demo/model.h5", "runs/longer/model.h5", "runs/longer/checkpoints/epoch-0001.h5", "own.h5"]
            .into_iter()
            .enumerate()
    {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds as u64)).unwrap();
    }
    fs::create_dir_all(folder.at("runs/stopped/checkpoints")).unwrap();
    fs::create_dir_all(folder.at("empty")).unwrap();
    folder
}

fn commands(model: &str) -> [Vec<&str>; 5] {
    [
        vec!["predict", model, "x.jpg"],
        vec!["predict", model, "x.jpg", "--best"],
        vec!["eval", model],
        vec!["eval", model, "--best"],
        vec!["export", model, "--to", "onnx", "-o", "x.onnx"],
    ]
}

#[test]
fn a_missing_model_is_reported_with_models_nearby() {
    let folder = setting();
    let file = "no such file";
    let cases: [(&str, &[&str]); 7] = [
        ("nowhere.h5", &["nowhere.h5: ", file, ": own.h5, runs/longer/model.h5, runs/demo/model.h5"]),
        ("onw.h5", &["onw.h5: ", file, "did you mean", " own.h5?"]),
        ("runs/dmo/model.h5", &["no folder runs/dmo;", "did you mean", " runs/demo/model.h5?"]),
        ("runs/long/deep/model.h5", &["no folder runs/long;"]),
        ("runs/stoped", &["runs/stoped: ", file, "did you mean", " runs/stopped?"]),
        ("/nowhere/model.h5", &["no folder /nowhere;", ": own.h5"]),
        ("empty/a/b", &["no folder empty/a;", ": runs/", "runs/longer", "runs/demo"]),
    ];
    for (model, parts) in cases {
        for args in commands(model) {
            let mut command = trireme(0, &args);
            command.current_dir(folder.path());
            start(command).wait(PATIENCE).failed(1, parts);
        }
    }
}

#[test]
fn a_missing_model_is_reported_without_others_nearby() {
    let folder = setting();
    // the current folder contains only a circular link
    symlink(".", folder.at("empty/circle")).unwrap();
    for args in commands("nowhere.h5") {
        let mut command = trireme(0, &args);
        command.current_dir(folder.at("empty"));
        start(command).wait(PATIENCE).failed(1, &["nowhere.h5", "no model", "nearby", " model.h5 "]);
    }
}

#[test]
fn a_model_that_all_ranks_miss_is_reported_once() {
    let folder = setting();
    let mut command = trireme(2, &["eval", "nowhere.h5"]);
    command.current_dir(folder.path());
    let ended = start(command).wait(PATIENCE).failed(1, &["nowhere.h5: ", "no such file"]);
    assert!(!ended.stderr.lines().any(|line| line.starts_with("rank ")), "{}", ended.stderr);
}

#[test]
fn a_folder_of_runs_is_not_taken_for_a_run() {
    let folder = setting();
    for args in commands("runs").into_iter().filter(|args| !args.contains(&"--best")) {
        let mut command = trireme(0, &args);
        command.current_dir(folder.path());
        start(command).wait(PATIENCE).failed(1, &["runs is a folder", ": runs/", "runs/demo"]);
    }
}
