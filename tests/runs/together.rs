//! Combinations of features in one recipe: early stopping, averages, optimizers and schedules with mixing, weights, teachers and repeats.
//! Results are bit-identical on 1 to 4 ranks and after a stop in the middle of an epoch. Also tests which teachers are refused.

use support::images::{DIGITS, THINGS};
use support::mentions;
use support::program::{events, numbers, sets};
use support::setting::Setting;

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
epochs = 4
seed = 7
batch = 16
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.003
augment.train = ["pad_crop(2)", "normalize"]
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [90, 40])
}

/// Trains with these keys on 1 to 4 ranks, and once more with a stop in epoch 3. Returns the output folder of the first run.
#[track_caller]
fn the_same_bits(setting: &Setting, name: &str, keys: &[&str]) -> String {
    let keys = sets(keys);
    let out = |part: &str| format!("{name}-{part}");
    let whole = setting.trained(&out("1"), 1, &keys);
    for ranks in [2, 3, 4] {
        let here = out(&ranks.to_string());
        setting.trained(&here, ranks, &keys);
        setting.assert_same_bits(&here, &out("1"));
    }
    setting.trained(&out("parts"), 3, &[&keys[..], &["--max-steps", "15"]].concat());
    setting.resumed(&out("parts"), 2, &keys);
    setting.assert_same_bits(&out("parts"), &out("1"));
    whole
}

/// The rate falls after epochs 2 and 4, before and after the stop, so the state of the schedule must be resumed.
#[test]
fn a_plateau_schedule_resumes_its_state() {
    let setting = setting();
    // a score must be better by 1 to count, which no top-1 is
    let keys = ["schedule.kind=plateau", "schedule.patience=0", "schedule.cooldown=1", "schedule.threshold=1"];
    let out = the_same_bits(&setting, "plateau", &[&keys[..], &["schedule.score=top1", "epochs=5"]].concat());
    let rates = numbers(&out, "step", "lr");
    let falls: Vec<usize> = (1..rates.len()).filter(|step| rates[*step] < rates[step - 1]).collect();
    assert_eq!(falls, [12, 24], "{rates:?}");
    assert_eq!(numbers(&setting.out("plateau-parts"), "step", "lr"), rates, "the rates differ after a stop");
}

#[test]
fn optimizers_and_schedules() {
    let setting = setting();
    let cycle = ["schedule.kind=one_cycle", "schedule.cycle_momentum=true", "schedule.base_lr=0.001"];
    the_same_bits(&setting, "lion", &[&cycle[..], &["optimizer.kind=lion", "ema.decay=0.9"]].concat());
    the_same_bits(&setting, "lamb", &["optimizer.kind=lamb", "optimizer.clip_agc=0.02", "schedule.base_lr=0.01"]);
    let restarts = ["schedule.kind=warm_restarts", "schedule.cycle_epochs=1.5", "schedule.cycle_factor=2"];
    let lars =
        ["optimizer.kind=lars", "optimizer.momentum_correction=true", "optimizer.eta=0.01", "label_smoothing=0.1"];
    the_same_bits(&setting, "lars", &[&restarts[..], &lars].concat());
    let rmsprop = ["optimizer.kind=rmsprop", "optimizer.form=tf", "optimizer.momentum_correction=true"];
    the_same_bits(&setting, "rmsprop", &[&rmsprop[..], &["schedule.base_lr=0.0001", "augment.repeats=3"]].concat());
}

#[test]
fn sam_averages_and_soft_targets() {
    let setting = setting();
    let sam = ["optimizer.sam_rho=0.05", "ema.swa_start=2"];
    let uneven = ["mix.mixup=0.4", "loss.class_weights=auto", "eval.flip=true", "checkpoint.best_by=ema.macro_f1"];
    let out = the_same_bits(&setting, "sam", &[&sam[..], &uneven].concat());
    let best: Vec<_> = events(&out, "eval").into_iter().filter(|eval| !eval["best"].is_null()).collect();
    assert!(!best.is_empty() && best.iter().all(|eval| eval["best"] == "ema.macro_f1" && eval["ema"] == true));
    let teacher = setting.trained("teacher", 0, &sets(&["model=lenet", "epochs=1"]));
    let taught = format!("distill.teacher={teacher}");
    let steps = ["steps=20", "stop.patience=9", "eval.every=2", "optimizer.sam_rho=0.05", "balanced=true"];
    let out = the_same_bits(&setting, "taught", &[&steps[..], &[&taught]].concat());
    let scored = numbers(&out, "eval", "step");
    assert_eq!(scored, [12.0, 20.0], "expected evaluations after the second epoch and at the last step");
    the_same_bits(
        &setting,
        "coded",
        &["reduce.codec=ternary", "reduce.min_elements=0", "reduce.floating_grad_epoch=2", sam[0]],
    );
}

/// A run reports its rules at the start, the best score so far when it resumes, and why it ended.
#[test]
fn a_run_reports_its_rules() {
    let setting = setting();
    let keys = sets(&["stop.patience=9", "checkpoint.best_by=loss", "optimizer.sam_rho=0.05", "ema.swa_start=2"]);
    let first = setting.train("out", 0, &[&keys[..], &["--max-steps", "15"]].concat()).succeeded();
    first.says(&["checkpoint with", "best loss"]);
    first.says(&["9 evaluations", "better top1"]);
    mentions(&first.stderr, &["rho 0.05", "from epoch 2"]);
    // the score at the last step is the best, although this step is within an epoch
    let evals = events(&setting.out("out"), "eval");
    let best = evals.iter().rfind(|eval| eval["best"] == "loss").unwrap();
    assert_eq!(best["step"], 15);
    setting.resumed("out", 0, &keys);
    let starts = events(&setting.out("out"), "start");
    let (score, step) = (best["loss"].as_f64().unwrap(), best["step"].as_u64().unwrap());
    assert_eq!(starts[1]["facts"]["best"], format!("loss {score:.4} (step {step})"));
    assert!(starts[0]["facts"]["best"].is_null());
}

const TAUGHT: &str = r#"
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
    let setting = Setting::new(TAUGHT, DIGITS, [90, 40]);
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
    setting.assert_losses_near("deaf", "alone", 1e-4);
}

#[test]
fn teachers_that_do_not_fit_are_refused() {
    let setting = Setting::new(TAUGHT, DIGITS, [32, 16]);
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
    let things = Setting::new(TAUGHT, THINGS, [32, 16]);
    let coloured = things.trained("teacher", 0, &["--max-steps", "1"]);
    refused(&[&taught(&coloured)], &["distill.teacher", "3x32x32", "1x28x28"]);
    let renamed = setting.described("renamed", |manifest| manifest.classes[3] = "something else".into());
    refused_on(
        &renamed,
        &[&taught(&teacher)],
        &["distill.teacher", "class 3 ", "\"wave 3\" in", "\"something else\" in"],
    );
}
