//! Data sets with other classes than the model: the error names the first difference, or `--map-classes` matches
//! classes by name. A run's folder is accepted in place of a model file. If a model does not exist, every command that accepts
//! one names the missing folder and the models nearby.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use support::images::DIGITS;
use support::program::{Folder, PATIENCE, ProgramOutput, run, start, trireme};
use support::setting::Setting;

const RECIPE: &str = r#"
epochs = 1
batch = 10
workers = 2
schedule.base_lr = 0.01
"#;

fn eval(model: &str, data: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
    run(ranks, &[&["eval", model, "--data", data, "--threads", "1", "--json"], more].concat())
}

fn score(ended: ProgramOutput) -> Value {
    ended.succeeded().json()
}

#[test]
fn classes_that_differ_are_refused_or_matched_by_name() {
    let setting = Setting::new(RECIPE, DIGITS, [20, 50]);
    let out = setting.trained("out", 0, &[]);
    // the folder of a run is accepted in place of a model
    let expected = score(eval(&out, &setting.data, 0, &[]));
    assert_eq!(expected["count"], 50);
    // class i of the model is class i + 1 here; class 0 has no images, and its name contains terminal control codes
    let shifted = setting.described("shifted", |manifest| {
        manifest.classes.insert(0, "\u{1b}[2Jextra".into());
        manifest.label_offset = -1;
    });
    for ranks in [0, 2] {
        let other = "\"\\u001b[2Jextra\" in";
        let parts = ["class 0 ", "\"wave 0\" in", "(10 classes)", other, "(11 classes)", "--map-classes"];
        let ended = eval(&out, &shifted, ranks, &[]).failed(1, &parts);
        assert!(!ended.stderr.contains('\u{1b}') && ended.stdout.is_empty(), "{:?}", ended.stderr);
        let ended = eval(&out, &shifted, ranks, &["--map-classes"]);
        ended.says(&["--map-classes", "matched 10 of", "11 classes"]);
        let mapped = score(ended);
        for number in ["top1", "top5", "loss", "count"] {
            assert_eq!(mapped[number], expected[number], "{number} on {ranks} ranks");
        }
    }
    let unknown = setting.described("unknown", |manifest| manifest.classes[3] = "something else".into());
    let ended = eval(&out, &unknown, 2, &["--map-classes"]);
    ended.says(&["--map-classes", "matched 9 of", "10 classes"]);
    let left = score(ended)["count"].as_u64().unwrap();
    assert!((30..50).contains(&left), "{left}");
    let others = setting.described("others", |manifest| manifest.classes.iter_mut().for_each(|name| name.push('!')));
    eval(&out, &others, 0, &["--map-classes"]).failed(1, &["--map-classes", "no class ", "\"wave 0!\" in"]);
}

/// Without images there is no score, so the exit code must not be 0.
#[test]
fn a_split_without_images_to_score_is_refused() {
    let setting = Setting::new(RECIPE, DIGITS, [20, 10]);
    let out = setting.trained("out", 0, &[]);
    let empty = Setting::new(RECIPE, DIGITS, [20, 0]);
    // the only common class, class 0, has no images
    let others = setting.described("others", |manifest| {
        manifest.classes.iter_mut().for_each(|name| name.push('!'));
        manifest.classes.insert(0, "wave 0".into());
        manifest.label_offset = -1;
    });
    for ranks in [0, 2] {
        let parts = ["the split test of", "has no images,", "--split"];
        let ended = eval(&out, &empty.data, ranks, &["--split", "test"]).failed(1, &parts);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        let parts = ["the split test of", "has no images of the classes", "in common", &others];
        eval(&out, &others, ranks, &["--map-classes"]).failed(1, &parts);
    }
}

#[test]
fn a_run_does_not_go_on_with_other_classes() {
    let setting = Setting::new(RECIPE, DIGITS, [20, 10]);
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    let swapped = setting.described("swapped", |manifest| manifest.classes.swap(4, 7));
    let parts = ["--resume: ", "class 4 ", "\"wave 4\" in", "step-00000001.h5", "\"wave 7\" in", &swapped];
    setting.train("out", 2, &["--resume", "auto", "--data", &swapped]).failed(2, &parts);
    // if the run is not finished, its newest checkpoint is scored
    fs::remove_file(format!("{out}/model.h5")).unwrap();
    let ended = eval(&out, &setting.data, 0, &[]);
    ended.says(&["step-00000001.h5", "newest checkpoint"]);
    assert_eq!(score(ended)["step"], 1);
}

/// Creates folders with files that are named like models. Later files are newer.
fn models_nearby() -> Folder {
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

fn run_in(folder: &Path, ranks: usize, args: &[&str]) -> ProgramOutput {
    let mut command = trireme(ranks, args);
    command.current_dir(folder);
    start(command).wait(PATIENCE)
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
    let folder = models_nearby();
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
            run_in(folder.path(), 0, &args).failed(1, parts);
        }
    }
}

#[test]
fn a_missing_model_is_reported_without_others_nearby() {
    let folder = models_nearby();
    // the current folder contains only a circular link
    symlink(".", folder.at("empty/circle")).unwrap();
    for args in commands("nowhere.h5") {
        run_in(&folder.path().join("empty"), 0, &args).failed(1, &["nowhere.h5", "no model", "nearby", " model.h5 "]);
    }
}

#[test]
fn a_model_that_all_ranks_miss_is_reported_once() {
    let folder = models_nearby();
    let ended = run_in(folder.path(), 2, &["eval", "nowhere.h5"]).failed(1, &["nowhere.h5: ", "no such file"]);
    assert!(!ended.stderr.lines().any(|line| line.starts_with("rank ")), "{}", ended.stderr);
}

#[test]
fn a_folder_of_runs_is_not_taken_for_a_run() {
    let folder = models_nearby();
    for args in commands("runs").into_iter().filter(|args| !args.contains(&"--best")) {
        run_in(folder.path(), 0, &args).failed(1, &["runs is a folder", ": runs/", "runs/demo"]);
    }
}
