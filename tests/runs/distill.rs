//! Distillation with the real binary. A student approaches its teacher, its result is bit-identical on any number of
//! ranks and after a stop, and unsuitable teachers are refused.

use support::images::{DIGITS, THINGS};
use support::program::{events, sets};
use support::setting::Setting;

const RECIPE: &str = r#"
epochs = 3
seed = 5
batch = 16
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

fn taught(teacher: &str) -> String {
    format!("distill.teacher={teacher}")
}

#[test]
fn a_student_is_the_same_on_any_ranks_and_after_a_stop() {
    let setting = Setting::new(RECIPE, DIGITS, [90, 40]);
    let teacher =
        setting.trained("teacher", 2, &["--set", "model=lenet", "--set", "epochs=8", "--set", "schedule.base_lr=0.01"]);
    let taught = taught(&teacher);
    let more = ["--set", &taught, "--set", "distill.share=1", "--set", "distill.temperature=2", "--set", "epochs=4"];
    let one = setting.assert_ranks_change_nothing(&[2, 3], &more);
    setting.assert_stops_change_nothing("1", &[(3, "8")], 2, &more);
    // the loss has only the teacher's share, so it is the divergence from the teacher
    setting.assert_learns("1", 4, 6, 0.7);
    let first = setting.train("said", 1, &[&more[..], &["--max-steps", "1"]].concat()).succeeded();
    assert!(first.stderr.contains("teacher: lenet from "), "{}", first.stderr);
    let scores = events(&one, "eval");
    assert!(scores[3]["loss"].as_f64() < scores[0]["loss"].as_f64(), "{scores:?}");
    // with a share of 0 the teacher changes only rounding errors
    setting.trained("deaf", 1, &["--set", &taught, "--set", "distill.share=0"]);
    setting.trained("alone", 1, &[]);
    for (a, b) in setting.losses("deaf").iter().zip(setting.losses("alone")) {
        assert!((a - b).abs() < 1e-4 * b, "loss {a} with a share of 0, {b} without a teacher");
    }
}

#[test]
fn teachers_that_do_not_fit_are_refused() {
    let setting = Setting::new(RECIPE, DIGITS, [32, 16]);
    let teacher = setting.trained("teacher", 0, &["--max-steps", "1"]);
    let refused_on = |data: &str, keys: &[&str], parts: &[&str]| {
        for ranks in [0, 2] {
            let args = [&["--data", data], &sets(keys)[..]].concat();
            let ended = setting.train("out", ranks, &args);
            assert!(!ended.status.success(), "{args:?} on {ranks} ranks");
            ended.says(parts);
        }
    };
    let refused = |keys: &[&str], parts: &[&str]| refused_on(&setting.data, keys, parts);
    refused(&["distill.share=0.5"], &["distill.share", "without distill.teacher"]);
    refused(&[&taught(&teacher), "distill.share=1.5"], &["distill.share=1.5", "[0, 1]"]);
    refused(&[&taught(&teacher), "distill.temperature=0"], &["distill.temperature=0", "> 0"]);
    refused(&[&taught("nowhere.h5")], &["distill.teacher", "nowhere.h5", "No such file"]);
    refused(&[&taught(&setting.recipe)], &["recipe.toml"]);
    refused(
        &[
            &taught(&teacher),
            "augment.train=[\"pad_crop(2)\", \"random_crop(24)\", \"normalize\"]",
            "augment.eval=[\"center_crop(24)\", \"normalize\"]",
        ],
        &["distill.teacher", "1x28x28", "1x24x24"],
    );
    refused(
        &[&taught(&teacher), "augment.train=[\"flip\"]", "augment.eval=[]"],
        &["distill.teacher", "-2.27 to 2.27", "0 to 255"],
    );
    refused(&["augment.eval=[]"], &["augment.train makes", "-2.27 to 2.27 ", "augment.eval makes", "0 to 255 "]);
    let began = ["--set", &taught(&teacher), "--max-steps", "1"];
    setting.trained("began", 1, &began);
    setting.trained("teacher", 0, &["--max-steps", "2", "--resume", "auto"]);
    let goes_on = [&began[..2], &["--max-steps", "2", "--resume", "auto"]].concat();
    for ranks in [1, 2] {
        let parts = ["step-00000001.h5", "another teacher", "checksum ", "restore the file"];
        let ended = setting.train("began", ranks, &goes_on).failed(2, &parts);
        assert_eq!(ended.stderr.matches("another teacher").count(), 1, "{}", ended.stderr);
    }
    let things = Setting::new(RECIPE, THINGS, [32, 16]);
    let coloured = things.trained("teacher", 0, &["--max-steps", "1"]);
    refused(&[&taught(&coloured)], &["distill.teacher", "3x32x32", "1x28x28"]);
    let renamed = setting.described("renamed", |manifest| manifest.classes[3] = "something else".into());
    refused_on(
        &renamed,
        &[&taught(&teacher)],
        &["distill.teacher", "class 3 ", "\"wave 3\" in", "\"something else\" in"],
    );
}
