//! Runs that continue for more epochs than planned.

use std::f64::consts::PI;
use std::fs;

use support::images::DIGITS;
use support::program::{events, numbers, run};
use support::setting::Setting;
use support::weights::model_at;

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
epochs = 2
batch = 8
workers = 2
optimizer.momentum = 0.9
schedule.kind = "cosine"
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

const LONGER: [&str; 5] = ["--resume", "auto", "--set", "epochs=4", "--extend-epochs"];

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 16])
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
    let setting = setting();
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
    let setting = setting();
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
    let setting = setting();
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
