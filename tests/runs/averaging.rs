//! Tests averages of the weights (`ema.swa_start`, lookahead) and `reduce.floating_grad_epoch`, with which every n-th
//! epoch exchanges exact gradients instead of ternary ones. Results are equal on any number of ranks and after a stop.

use std::fs;
use std::path::Path;

use formats::checkpoint::{LayerWeights, ModelFile};
use serde_json::Value;

use support::images::DIGITS;
use support::program::run;
use support::setting::Setting;

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
model = "lenet-caffe"
data = "given with --data"
epochs = 4
batch = 8
workers = 3

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 0.003

[augment]
train = ["normalize"]
eval = ["normalize"]

[reduce]
codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 20])
}

fn sets<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().flat_map(|key| ["--set", *key]).collect()
}

fn values(layers: &[LayerWeights]) -> Vec<f32> {
    layers.iter().flat_map(|layer| &layer.tensors).flat_map(|tensor| tensor.2.clone()).collect()
}

fn model(out: &str) -> ModelFile {
    ModelFile::read(&Path::new(out).join("model.h5")).unwrap()
}

/// Neither the last step of the run nor the step of the stop is a multiple of the lookahead period.
#[test]
fn lookahead_ends_with_the_averages_on_any_number_of_ranks_and_after_a_stop() {
    let setting = setting();
    let keys = sets(&["ema.lookahead=5", "ema.decay=0.8", "ema.lookahead_power=2", "eval.ema=false"]);
    let whole = setting.trained("whole", 0, &keys);
    let trained = model(&whole);
    assert_eq!(values(&trained.layers), values(&trained.ema));
    let plain = setting.trained("plain", 0, &[]);
    assert_ne!(values(&trained.layers), values(&model(&plain).layers));
    setting.trained("parts", 2, &[&keys[..], &["--max-steps", "13"]].concat());
    fs::remove_file(setting.out("parts/model.h5")).unwrap();
    setting.train("parts", 3, &[&keys[..], &["--resume", "auto"]].concat()).succeeded();
    assert!(setting.model("whole") == setting.model("parts"), "model.h5 differs after a stop on 2 and 3 ranks");
}

/// The averages equal the mean of the weights after epochs 2, 3 and 4. Shorter runs produce these weights.
#[test]
fn weights_are_averaged_from_an_epoch_on() {
    let setting = setting();
    let keys = sets(&["ema.swa_start=2"]);
    let whole = setting.trained("whole", 0, &keys);
    let after = |steps: &str| values(&model(&setting.trained(steps, 0, &["--max-steps", steps])).layers);
    let ends = ["12", "18", "24"].map(after);
    let averages = values(&model(&whole).ema);
    for (i, average) in averages.iter().enumerate() {
        let mean = ends.iter().map(|end| f64::from(end[i])).sum::<f64>() / 3.0;
        assert!(
            (f64::from(*average) - mean).abs() <= 1e-6 * mean.abs().max(1e-2),
            "element {i}: expected {mean}, got {average}"
        );
    }
    assert_eq!(values(&model(&whole).layers), ends[2], "averaging must not change the weights");
    setting.trained("parts", 2, &[&keys[..], &["--max-steps", "15"]].concat());
    fs::remove_file(setting.out("parts/model.h5")).unwrap();
    setting.train("parts", 3, &[&keys[..], &["--resume", "auto"]].concat()).succeeded();
    assert!(
        setting.model("whole") == setting.model("parts"),
        "model.h5 differs after a stop on another number of ranks"
    );
    let scored = run(2, &["eval", &whole, "--ema", "--json", "--threads", "1", "--batch", "3"]).succeeded().stdout;
    let score: Value = serde_json::from_str(&scored).unwrap();
    let last = support::program::events(&whole, "eval").pop().unwrap();
    assert_eq!((&last["ema"], &last["loss"]), (&true.into(), &score["loss"]));
}

/// With `reduce.floating_grad_epoch=2`, every second epoch exchanges exact gradients instead of ternary ones.
#[test]
fn every_other_epoch_is_exact() {
    let setting = setting();
    let ternary = sets(&["reduce.codec=ternary", "reduce.floating_grad_epoch=2", "reduce.min_elements=0"]);
    let whole = setting.trained("whole", 0, &ternary);
    assert_eq!(setting.digest("whole"), {
        setting.trained("ranks", 3, &ternary);
        setting.digest("ranks")
    });
    setting.trained("parts", 2, &[&ternary[..], &["--max-steps", "9"]].concat());
    fs::remove_file(setting.out("parts/model.h5")).unwrap();
    setting.train("parts", 1, &[&ternary[..], &["--resume", "auto"]].concat()).succeeded();
    assert!(setting.model("whole") == setting.model("parts"));
    // with 1, every epoch is exact; without the key, none is; with 2, every second epoch is
    let all = sets(&["reduce.codec=ternary", "reduce.floating_grad_epoch=1", "reduce.min_elements=0"]);
    setting.trained("all", 2, &all);
    setting.trained("exact", 2, &[]);
    let losses = |out: &str| setting.losses(out);
    assert_eq!(losses("all"), losses("exact"));
    setting.trained("none", 2, &sets(&["reduce.codec=ternary", "reduce.min_elements=0"]));
    assert_eq!(losses("none")[..6], losses("whole")[..6], "the first epoch must be ternary");
    // step 6 is the first with exact gradients: its loss is computed before its update, so only later losses differ
    assert_eq!(losses("none")[6], losses("whole")[6]);
    assert_ne!(losses("none")[7..12], losses("whole")[7..12]);
    let refused = sets(&["reduce.floating_grad_epoch=2"]);
    setting.train("out", 0, &refused).failed(2, &["reduce.floating_grad_epoch", "codec ternary"]);
    assert!(Path::new(&whole).exists());
}
