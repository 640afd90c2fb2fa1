//! Data sets with other classes than the model: the error names the first difference, or `--map-classes` matches
//! classes by name. Also tests that a run's folder is accepted in place of a model file.

use std::fs;

use serde_json::Value;
use support::images::DIGITS;
use support::program::{ProgramOutput, run};
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
