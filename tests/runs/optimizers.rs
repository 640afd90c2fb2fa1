//! The real binary with every optimizer, with sharpness-aware minimisation (SAM), averages of the weights and
//! `--find-lr`. Results are equal on any number of ranks and after a stop.

use std::fs;
use std::path::Path;

use formats::checkpoint::LayerWeights;

use support::images::DIGITS;
use support::program::{events, numbers, run, sets};
use support::setting::{Setting, with_common_keys};
use support::small_run::RECIPE;
use support::weights::{self, header, model, model_at, values};

const HEAD: &str = "epochs = 4
seed = 3
batch = 16
workers = 2
";

/// Learning rates, each with the rest of an `[optimizer]` section. Together the sections use each key that is specific to a kind.
const SETTINGS: &[(&str, &str)] = &[
    ("0.02", "kind = \"sgd\"\nmomentum = 0.9\nclip_norm = 0.5"),
    ("0.05", "kind = \"sgd\"\nnesterov = true\nmomentum = 0.9\nclip_value = 0.05"),
    ("0.002", "kind = \"adam\"\nbeta1 = 0.8\nbeta2 = 0.99\neps = 1e-7"),
    ("0.002", "kind = \"adamw\"\nweight_decay = 0.05\nno_decay = [\"*.bias\"]"),
    ("0.0005", "kind = \"rmsprop\"\ncentered = true"),
    ("0.01", "kind = \"rmsprop\"\nform = \"tf\"\nalpha = 0.9\neps = 1.0\nmomentum = 0.9"),
    ("0.2", "kind = \"lars\"\neta = 0.02\nweight_decay = 1e-4\nclip_norm = 100.0"),
    ("0.02", "kind = \"lars\"\neta = 0.02\nlarc = true\nno_adapt = [\"fc2.*\"]"),
    ("0.0005", "kind = \"lion\"\nbeta1 = 0.9\nbeta2 = 0.99\nweight_decay = 0.01"),
    ("0.02", "kind = \"lamb\"\nweight_decay = 0.01"),
    ("0.01", "kind = \"adagrad\"\nlr_decay = 1e-3\ninitial_accumulator_value = 0.1\neps = 1e-8"),
];

fn setting() -> Setting {
    Setting::new(HEAD, DIGITS, [160, 20])
}

#[track_caller]
fn train(setting: &Setting, name: &str, lr: &str, optimizer: &str, ranks: usize, more: &[&str]) -> String {
    let text = with_common_keys(&format!("{HEAD}schedule.base_lr = {lr}\n[optimizer]\n{optimizer}\n"));
    let recipe = setting.folder.write(&format!("{name}.toml"), &text);
    let out = setting.out(name);
    let args = ["train", &recipe, "--data", &setting.data, "--out", &out, "--threads", "1"];
    run(ranks, &[&args, more].concat()).succeeded();
    out
}

#[test]
fn every_optimizer_learns_on_any_number_of_ranks() {
    let setting = setting();
    for (i, (lr, optimizer)) in SETTINGS.iter().enumerate() {
        let one = train(&setting, &format!("{i}-one"), lr, optimizer, 1, &[]);
        let (first, rest) = numbers(&one, "step", "loss").split_first().map(|(f, r)| (*f, r.to_vec())).unwrap();
        let last = rest[rest.len() - 10..].iter().sum::<f64>() / 10.0;
        assert!(last < 0.8 * first, "{optimizer}: loss {first} at first, {last} at the end");
        let two = train(&setting, &format!("{i}-two"), lr, optimizer, 2, &["--max-steps", "5"]);
        for (step, (one, two)) in numbers(&one, "step", "loss").iter().zip(numbers(&two, "step", "loss")).enumerate() {
            assert!(
                (one - two).abs() <= 1e-3 * one,
                "{optimizer}: step {}: loss {one} on one rank, {two} on two",
                step + 1
            );
        }
        let norms = |out: &str| -> Vec<f64> {
            events(out, "step").iter().filter_map(|e| e.get("grad_norm")?.as_f64()).collect()
        };
        assert_eq!(norms(&one).len(), if optimizer.contains("clip_norm") { 40 } else { 0 }, "{optimizer}");
        assert_eq!(norms(&two).len(), if optimizer.contains("clip_norm") { 5 } else { 0 }, "{optimizer}");
        assert!(norms(&one).iter().zip(norms(&two)).all(|(a, b)| (a - b).abs() <= 1e-2 * a), "{optimizer}");
    }
}

/// After one step, TensorFlow's rule gives averages of 2/11 of the start plus 9/11 of the updated weights.
#[test]
fn eval_and_predict_find_the_averages() {
    let setting = setting();
    let (lr, optimizer) = SETTINGS[0];
    let averaged = format!("{optimizer}\n[ema]\ndecay = 0.99");
    let start = model(&train(&setting, "start", "0", &averaged, 1, &["--max-steps", "1"]));
    assert_eq!(start.ema, start.layers);
    let out = train(&setting, "one", lr, &averaged, 2, &["--max-steps", "1"]);
    let after = model(&out);
    let mut moved = 0;
    for ((average, first), last) in after.ema.iter().zip(&start.layers).zip(&after.layers) {
        for ((average, first), last) in average.tensors.iter().zip(&first.tensors).zip(&last.tensors) {
            for ((average, first), last) in average.2.iter().zip(&first.2).zip(&last.2) {
                let expected = f64::from(*first) * 2.0 / 11.0 + f64::from(*last) * 9.0 / 11.0;
                assert!((f64::from(*average) - expected).abs() <= 1e-7, "{average}, expected {expected}");
                moved += usize::from(first != last);
            }
        }
    }
    assert!(moved > 1000, "only {moved} weights moved");
    let file = format!("{out}/model.h5");
    let score = |ranks, more: &[&str]| {
        let args = ["eval", &file, "--data", &setting.data, "--threads", "1", "--json"];
        run(ranks, &[&args, more].concat()).succeeded().json()
    };
    assert_eq!(score(1, &["--ema"]), score(2, &["--ema"]));
    assert_ne!(score(1, &["--ema"])["loss"], score(1, &[])["loss"]);
    let without = train(&setting, "without", lr, optimizer, 1, &["--max-steps", "1"]);
    let file = format!("{without}/model.h5");
    let words = ["--ema", "has no averages", "--set ema.decay=0.999"];
    run(0, &["eval", &file, "--data", &setting.data, "--ema"]).failed(2, &words);
    run(0, &["predict", &file, "--ema", "no-picture.png"]).failed(2, &words);
}

/// A recipe with six steps per epoch.
const CLIMBING: &str = r#"
epochs = 2
batch = 8
workers = 3
schedule.base_lr = 1.0
reduce.codec = "exact"
"#;

/// `optimizer.sam_rho`: the length of the step towards a higher loss.
const RHO: f64 = 0.5;

fn weights_of(layers: &[LayerWeights]) -> Vec<f64> {
    weights::values(layers).into_iter().map(f64::from).collect()
}

/// Returns the gradient of the first step, which SGD with a learning rate of 1 subtracts from the weights.
fn gradient(before: &[f64], out: &str) -> Vec<f64> {
    before.iter().zip(weights_of(&model(out).layers)).map(|(b, a)| b - a).collect()
}

#[test]
fn a_step_uses_the_gradient_at_the_climbed_weights() {
    let setting = Setting::new(CLIMBING, DIGITS, [48, 10]);
    let start = setting.trained("start", 0, &["--max-steps", "0"]);
    let mut first = model(&start);
    let w = weights_of(&first.layers);
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
    let above = weights_of(&model_at(&hill).layers);
    let up = setting.trained("up", 0, &["--max-steps", "1", "--set", &format!("init.from={hill}")]);
    let second = gradient(&above, &up);
    let rho = format!("optimizer.sam_rho={RHO}");
    let sam = weights_of(&model(&setting.trained("sam", 2, &["--max-steps", "1", "--set", &rho])).layers);
    let far = second.iter().zip(&g).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far > 1e-3, "the gradient hardly changes with the climb ({far}), so nothing is tested");
    for (i, ((sam, w), g)) in sam.iter().zip(&w).zip(&second).enumerate() {
        assert!((sam - (w - g)).abs() < 2e-5, "element {i}: got {sam}, expected {}", w - g);
    }
}

#[test]
fn any_number_of_ranks_and_a_stop_leave_the_same_bits() {
    let setting = Setting::new(CLIMBING, DIGITS, [48, 10]);
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
    let setting = Setting::new(CLIMBING, DIGITS, [48, 10]);
    for (codec, same) in [("exact", true), ("int8", false), ("ternary", false)] {
        let codec_key = format!("reduce.codec={codec}");
        let keys = ["--max-steps", "1", "--set", &codec_key, "--set", "reduce.min_elements=1"];
        let keys = if codec == "exact" { &keys[..4] } else { &keys[..] };
        let plain = setting.trained(&format!("{codec}-plain"), 2, keys);
        let sam = setting.trained(&format!("{codec}-sam"), 2, &[keys, &["--set", "optimizer.sam_rho=1e-30"]].concat());
        assert_eq!(weights_of(&model(&plain).layers) == weights_of(&model(&sam).layers), same, "{codec}");
    }
}

/// A recipe with six steps per epoch.
const AVERAGED: &str = r#"
epochs = 4
batch = 8
workers = 3
optimizer.momentum = 0.9
schedule.base_lr = 0.003
reduce.codec = "exact"
"#;

fn averaged() -> Setting {
    Setting::new(AVERAGED, DIGITS, [48, 20])
}

/// The run ends, and is stopped, between two updates of the averages.
#[test]
fn lookahead_ends_with_the_averages_on_any_number_of_ranks_and_after_a_stop() {
    let setting = averaged();
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
    let setting = averaged();
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
    let setting = averaged();
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

/// `normalize` makes the images so large that the gradients of the second step are not finite. The search must end on
/// every rank, and no rank may wait for another.
#[test]
fn a_search_that_diverges_at_once_ends_on_all_ranks() {
    let setting = Setting::new(&format!("{RECIPE}\n[reduce]\ncodec = \"exact\"\n"), DIGITS, [48, 10]);
    let bright = [
        "--find-lr=20",
        "--set",
        "augment.train=[\"normalize(0, 1e-18)\"]",
        "--set",
        "augment.eval=[\"normalize(0, 1e-18)\"]",
    ];
    for ranks in [0, 2] {
        setting.train("out", ranks, &bright).failed(1, &["--find-lr", "did not fall"]);
    }
}

/// The search would take hours, so the test passes only if the check comes first.
#[test]
fn a_search_that_cannot_write_its_picture_fails_before_its_first_step() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    setting.folder.write("file", "");
    fs::create_dir(setting.out("taken.find-lr.svg")).unwrap();
    // with its ending, the name of the picture is too long
    let long = "x".repeat(250);
    for out in ["file/out", "taken", long.as_str()] {
        for ranks in [0, 2] {
            let ended = setting.train(out, ranks, &["--find-lr=100000000"]);
            ended.failed(2, &[&format!("{out}.find-lr.svg"), "--find-lr", "another --out"]);
        }
    }
}

#[test]
fn the_same_rate_is_found_on_any_number_of_ranks() {
    let setting = Setting::new(&format!("{RECIPE}\n[reduce]\ncodec = \"exact\"\n"), DIGITS, [48, 10]);
    let find = |out: &str, ranks: usize, more: &[&str]| {
        let ended = setting.train(out, ranks, &[&["--find-lr=90"], more].concat()).succeeded();
        let picture = fs::read_to_string(setting.out(&format!("{out}.find-lr.svg"))).unwrap();
        assert!(!Path::new(&setting.out(out)).exists(), "the run's folder was touched");
        (ended.stdout.lines().last().unwrap().to_string(), picture)
    };
    let (rate, picture) = find("alone", 0, &[]);
    let found: f64 = rate.strip_prefix("schedule.base_lr = ").unwrap().parse().unwrap();
    assert!((1e-5..1.0).contains(&found), "{rate}");
    assert!(picture.contains("<polyline") && picture.contains("stroke-dasharray"));
    assert_eq!(find("two", 2, &[]), (rate.clone(), picture));
    // with `schedule.reference_batch`, the printed rate is the rate for a batch of that size
    let (scaled, _) = find("scaled", 0, &["--set", "schedule.reference_batch=2"]);
    let scaled: f64 = scaled.strip_prefix("schedule.base_lr = ").unwrap().parse().unwrap();
    assert!((scaled - found / 4.0).abs() < 0.06 * found, "{scaled} and {found}");
    setting.train("out", 0, &["--find-lr", "--resume", "auto"]).failed(2, &["--find-lr", "--resume"]);
    // the search has not created the output folder, so that training can use it
    setting.trained("alone", 0, &["--set", &rate, "--max-steps", "1"]);
}
