//! Tests averages of the weights (`ema.swa_start`, lookahead) and `reduce.floating_grad_epoch`, with which every n-th
//! epoch exchanges exact gradients instead of ternary ones. Results are equal on any number of ranks and after a stop.

use support::images::DIGITS;
use support::program::{events, run, sets};
use support::setting::Setting;
use support::weights::{header, model, values};

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
epochs = 4
batch = 8
workers = 3
optimizer.momentum = 0.9
schedule.base_lr = 0.003
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 20])
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
    setting.assert_stops_change_nothing("whole", &[(2, "13")], 3, &keys);
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
    setting.assert_stops_change_nothing("whole", &[(2, "15")], 3, &keys);
    let score = run(2, &["eval", &whole, "--ema", "--json", "--threads", "1", "--batch", "3"]).succeeded().json();
    let last = events(&whole, "eval").pop().unwrap();
    assert_eq!((&last["ema"], &last["loss"]), (&true.into(), &score["loss"]));
    // a model's scores belong to its last weights, so an export of the averages has no scores
    let file = setting.folder.at("net.safetensors");
    let scores = |more: &[&str]| {
        let args = ["export", &whole, "--to", "safetensors", "-o", &file, "--force"];
        run(0, &[&args, more].concat()).succeeded();
        header(&std::fs::read(&file).unwrap()).0["__metadata__"]["trireme.scores"].as_str().unwrap().to_string()
    };
    assert!(scores(&[]).contains("test/loss"));
    assert_eq!(scores(&["--ema"]), "{}");
}

/// With `reduce.floating_grad_epoch=2`, every second epoch exchanges exact gradients instead of ternary ones.
#[test]
fn every_other_epoch_is_exact() {
    let setting = setting();
    let ternary = sets(&["reduce.codec=ternary", "reduce.floating_grad_epoch=2", "reduce.min_elements=0"]);
    setting.trained("whole", 0, &ternary);
    setting.trained("ranks", 3, &ternary);
    assert_eq!(setting.digest("whole"), setting.digest("ranks"));
    setting.assert_stops_change_nothing("whole", &[(2, "9")], 1, &ternary);
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
}
