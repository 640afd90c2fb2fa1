//! The real binary with every optimizer. The loss falls, the number of ranks changes only rounding, the log has the
//! gradient norm, and `eval` and `predict` find the weight averages.

use support::images::DIGITS;
use support::program::{events, numbers, run};
use support::setting::{Setting, with_common_keys};
use support::weights::model;

const HEAD: &str = "epochs = 4
seed = 3
batch = 16
workers = 2
";

/// Learning rates, each with the rest of an `[optimizer]` section. Together the sections use each key that is specific
/// to a kind.
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
