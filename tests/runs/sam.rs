//! Sharpness-aware minimisation (SAM): a step equals the same step made of plain training steps, and results are
//! bit-identical on any number of ranks and after a stop.

use std::path::Path;

use formats::checkpoint::LayerWeights;

use support::images::DIGITS;
use support::program::sets;
use support::setting::Setting;
use support::weights::{self, model, model_at};

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
epochs = 2
batch = 8
workers = 3
schedule.base_lr = 1.0
reduce.codec = "exact"
"#;

/// `optimizer.sam_rho`: the length of the step towards a higher loss.
const RHO: f64 = 0.5;

fn values(layers: &[LayerWeights]) -> Vec<f64> {
    weights::values(layers).into_iter().map(f64::from).collect()
}

/// Returns the gradient of the first step. At a rate of 1 it equals the change of the weights.
fn gradient(before: &[f64], out: &str) -> Vec<f64> {
    before.iter().zip(values(&model(out).layers)).map(|(b, a)| b - a).collect()
}

#[test]
fn a_step_uses_the_gradient_at_the_climbed_weights() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let start = setting.trained("start", 0, &["--max-steps", "0"]);
    let mut first = model(&start);
    let w = values(&first.layers);
    let g = gradient(&w, &setting.trained("plain", 0, &["--max-steps", "1"]));
    let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut climbed = g.iter().zip(&w).map(|(g, w)| (w + RHO * g / norm) as f32);
    first
        .layers
        .iter_mut()
        .flat_map(|layer| &mut layer.tensors)
        .flat_map(|t| &mut t.2)
        .for_each(|v| *v = climbed.next().unwrap());
    let hill = setting.folder.at("hill.h5");
    first.write(Path::new(&hill)).unwrap();
    let above = values(&model_at(&hill).layers);
    let up = setting.trained("up", 0, &["--max-steps", "1", "--set", &format!("init.from={hill}")]);
    let second = gradient(&above, &up);
    let rho = format!("optimizer.sam_rho={RHO}");
    let sam = values(&model(&setting.trained("sam", 2, &["--max-steps", "1", "--set", &rho])).layers);
    let far = second.iter().zip(&g).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far > 1e-3, "the gradient hardly changes with the climb ({far}), so nothing is tested");
    for (i, ((sam, w), g)) in sam.iter().zip(&w).zip(&second).enumerate() {
        assert!((sam - (w - g)).abs() < 2e-5, "element {i}: got {sam}, expected {}", w - g);
    }
}

#[test]
fn any_number_of_ranks_and_a_stop_leave_the_same_bits() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let keys = ["optimizer.sam_rho=0.05", "optimizer.momentum=0.9", "schedule.base_lr=0.003", "ema.decay=0.9"];
    setting.trained("whole", 1, &sets(&keys));
    setting.assert_stops_change_nothing("whole", &[(2, "4")], 3, &sets(&keys));
    setting.trained("plain", 1, &sets(&keys[1..]));
    assert_ne!(setting.digest("plain"), setting.digest("whole"));
    for (other, parts) in [
        ("sync=local(2)", ["optimizer.sam_rho", "sync = \"local(2)\""]),
        ("precision=f16", ["optimizer.sam_rho", "precision = \"f16\""]),
    ] {
        let keys = sets(&["optimizer.sam_rho=0.05", "reduce.codec=float", other]);
        setting.train("out", 0, &keys).failed(2, &parts);
    }
}

/// With a tiny `sam_rho`, a SAM step has the same gradient as a plain step. But the codecs int8 and ternary round it
/// with other random draws than in a plain step, so the results are equal only with the codec "exact".
#[test]
fn both_gradients_are_rounded_with_their_own_draws() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    for (codec, same) in [("exact", true), ("int8", false), ("ternary", false)] {
        let codec_key = format!("reduce.codec={codec}");
        let keys = ["--max-steps", "1", "--set", &codec_key, "--set", "reduce.min_elements=1"];
        let keys = if codec == "exact" { &keys[..4] } else { &keys[..] };
        let plain = setting.trained(&format!("{codec}-plain"), 2, keys);
        let sam = setting.trained(&format!("{codec}-sam"), 2, &[keys, &["--set", "optimizer.sam_rho=1e-30"]].concat());
        assert_eq!(values(&model(&plain).layers) == values(&model(&sam).layers), same, "{codec}");
    }
}
