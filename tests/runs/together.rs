//! Combinations of features in one recipe: early stopping, averages, optimizers and schedules with mixing, weights,
//! teachers and repeats. Results are bit-identical on 1 to 4 ranks and after a stop in the middle of an epoch.

use support::images::DIGITS;
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

/// Trains with these keys on 1 to 4 ranks, and once more with a stop in epoch 3. Returns the output folder of the first
/// run.
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
