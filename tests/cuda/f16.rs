//! What f16's short range does to a run on a GPU: steps that are left out, on all ranks alike and never in silence, and ends that say why.

use std::path::Path;

use formats::checkpoint::{Scale, StateFile};
use loaders::ImageSpec;

use support::gpu;
use support::program::events;
use support::setting::Setting;

/// Tests of this file that run on any GPU.
const TESTS: usize = 3;

/// Two images a step make LeNet's first gradients too large for f16 at the first scale: all ranks leave those steps out alike.
const LENET: &str = r#"
model = "lenet"
data = "given with --data"
epochs = 1
seed = 7
batch = 2
workers = 2
precision = "f16"

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 1e-4

[augment]
train = ["normalize(0.5, 0.01)"]
eval = ["normalize(0.5, 0.01)"]

[reduce]
codec = "exact"
"#;

fn sized(recipe: &str, size: u32) -> Setting {
    Setting::new(recipe, ImageSpec::new(size, size, 3), [43, 16])
}

#[test]
fn a_step_that_f16_cannot_hold_is_left_out_on_all_ranks() {
    if !gpu::emulated("the steps that f16 loses of one run") {
        return;
    }
    // at 8x8 one bucket has all parameters and zeros between them, which must stay zeros when a step is lost
    for (size, later) in [(32, "6"), (8, "16")] {
        let setting = sized(LENET, size);
        let train = |out: &str, ranks, more: &[&str]| {
            gpu::train(&setting, out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded();
            setting.digest(out)
        };
        // left out: the rate, ten times as high, is not compared
        let first = ["--max-steps", "1"];
        let higher = [&first[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_eq!(train("first", 1, &first), train("higher", 1, &higher), "the first step was taken");
        assert_eq!(train("first of 2", 2, &first), train("first of 1", 1, &first));
        // and then the scale fits: the rate shows, and the bits are the same on any number of ranks
        let later = ["--max-steps", later];
        let one = train("one", 1, &later);
        assert_eq!(train("two", 2, &later), one);
        let higher = [&later[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_ne!(train("one higher", 1, &higher), one, "no step was taken");
    }
}

/// Each step's line has the scale that its losses were multiplied by and how many steps before it were lost, a run that was stopped goes
/// on counting, and the log names the first ones, once.
#[test]
fn steps_that_f16_loses_stand_in_the_log() {
    if !gpu::available(TESTS) {
        return;
    }
    let setting = sized(LENET, 8);
    let train = |out: &str, ranks, more: &[&str]| {
        gpu::train(&setting, out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded().stderr
    };
    let said = train("whole", 2, &["--max-steps", "16"]);
    let steps = |out: &str| {
        let steps = events(&setting.folder.at(out), "step");
        let number = |line: &serde_json::Value, name: &str| line[name].as_f64().unwrap_or_else(|| panic!("no {name}"));
        steps.iter().map(|s| (number(s, "loss_scale"), number(s, "lost_steps"))).collect::<Vec<_>>()
    };
    let whole = steps("whole");
    assert_eq!(whole[0], (65536.0, 0.0));
    assert!(whole[15].1 > 0.0, "no step was lost: {whole:?}");
    for (i, &(scale, lost)) in whole.iter().enumerate() {
        assert_eq!(scale, 65536.0 / lost.exp2(), "step {}: halved with each step that was lost", i + 1);
        let line = format!("step {i} skipped: a gradient was Inf or NaN in f16; the loss scale is now {scale}");
        let named = said.lines().filter(|said| said.starts_with(&line)).count();
        assert_eq!(named, usize::from(i > 0 && lost > whole[i - 1].1 && lost <= 10.0), "lines {line:?} in:\n{said}");
    }
    train("parts", 2, &["--max-steps", "3"]);
    train("parts", 1, &["--max-steps", "16", "--resume", "auto"]);
    assert_eq!(steps("parts"), whole, "as if it had never stopped");
    train("f32", 1, &["--max-steps", "1", "--set", "precision=f32"]);
    let line = &events(&setting.folder.at("f32"), "step")[0];
    assert!(line.get("loss_scale").is_none() && line.get("lost_steps").is_none(), "{line}");
}

/// Makes a weight -Inf in f16 behind an activation that is always 1: ReLU hides the score, which is -Inf, and the loss stays finite, but
/// that activation's gradient is 0 times -Inf at any scale.
fn poison(checkpoint: &Path) {
    let mut state = StateFile::read(checkpoint).unwrap_or_else(|e| panic!("{e}"));
    for layer in &mut state.model.layers {
        for (field, shape, values) in &mut layer.tensors {
            match (layer.name.as_str(), field.as_str()) {
                ("conv2", "weight") => values[..shape[1..].iter().product()].fill(0.0),
                ("conv2", "bias") => values[0] = 1.0,
                ("fc1", "weight") => values[0] = -1e6,
                _ => {}
            }
        }
    }
    state.progress.loss_scale = Some(Scale { scale: 65536.0, good: 0, lost: 1 });
    state.write(checkpoint).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_scale_that_is_halved_in_vain_ends_the_run() {
    if !gpu::available(TESTS) {
        return;
    }
    let setting = sized(LENET, 8);
    for ranks in [1, 2] {
        let out = ranks.to_string();
        let more = ["--share-gpu", "--set", "epochs=2"];
        gpu::train(&setting, &out, ranks, &[&more[..], &["--max-steps", "1"]].concat(), &[]).succeeded();
        poison(&setting.folder.path().join(&out).join("checkpoints/step-00000001.h5"));
        let ended = gpu::train(&setting, &out, ranks, &[&more[..], &["--resume", "auto"]].concat(), &[]);
        // from 2^16 to what is below 2^-10
        let parts = ["27 steps in a row", "Inf or NaN", "precision = \"bf16\"", "schedule.base_lr", "data stats"];
        let said = ended.failed(1, &parts).stderr;
        assert!(!said.contains("the loss of step"), "{said}");
        let steps = events(&setting.folder.at(&out), "step");
        assert_eq!(steps.len(), 1 + 27 + 1, "the first, those that were left out, and the end");
        assert!(steps[..28].iter().all(|step| step["loss"].is_f64()) && steps[28]["loss"].is_null(), "a loss is lost");
    }
}

/// What f16 cannot hold in the forward pass no scale can help.
#[test]
fn a_loss_that_is_lost_in_f16_says_so() {
    if !gpu::available(TESTS) {
        return;
    }
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.5, 1e-6)\"]"));
    let huge = ["--share-gpu", "--set", &lists[0], "--set", &lists[1]];
    let ended = gpu::train(&sized(LENET, 8), "out", 2, &huge, &[]);
    ended.failed(1, &["the loss of step 1 is not finite", "the loss of every rank", "precision = \"bf16\"", "65,504"]);
}
