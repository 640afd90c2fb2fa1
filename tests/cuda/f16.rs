//! Effects of the limited range of f16 on a GPU run. All ranks skip the same steps, the log reports these steps, and the
//! error message of a run that fails says why.

use std::path::Path;

use base::run_state::LossScale;
use formats::checkpoint::StateFile;
use loaders::ImageSpec;

use support::gpu;
use support::program::events;
use support::setting::Setting;

/// A recipe for LeNet with two images per step, so that its first gradients overflow f16 at the initial loss scale. All
/// ranks must skip the same steps.
const LENET: &str = r#"
model = "lenet"
epochs = 1
seed = 7
batch = 2
workers = 2
precision = "f16"
optimizer.momentum = 0.9
schedule.base_lr = 1e-4
augment.train = ["normalize(0.5, 0.01)"]
augment.eval = ["normalize(0.5, 0.01)"]
reduce.codec = "exact"
"#;

fn sized(recipe: &str, size: u32) -> Setting {
    Setting::new(recipe, ImageSpec::new(size, size, 3), [43, 16])
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_step_that_f16_cannot_hold_is_left_out_on_all_ranks() {
    // at 8x8 a single bucket holds all parameters and zeros between them; a skipped step must keep these zeros
    for (size, later) in [(32, "6"), (8, "16")] {
        let setting = sized(LENET, size);
        let train = |out: &str, ranks, more: &[&str]| {
            gpu::train(&setting, out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded();
            setting.digest(out)
        };
        // the first step is skipped, so a learning rate ten times as high makes no difference
        let first = ["--max-steps", "1"];
        let higher = [&first[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_eq!(train("first", 1, &first), train("higher", 1, &higher), "the first step was not skipped");
        assert_eq!(train("first of 2", 2, &first), train("first of 1", 1, &first));
        // once the loss scale is small enough, the learning rate makes a difference, and the results do not depend on the number of ranks
        let later = ["--max-steps", later];
        let one = train("one", 1, &later);
        assert_eq!(train("two", 2, &later), one);
        let higher = [&later[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_ne!(train("one higher", 1, &higher), one, "all steps were skipped");
    }
}

/// The log line of each step has the loss scale and the number of steps skipped so far. A resumed run continues the
/// count. The log reports each of the first skipped steps once.
#[test]
fn steps_skipped_in_f16_are_logged() {
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
    assert!(whole[15].1 > 0.0, "no step was skipped: {whole:?}");
    for (i, &(scale, lost)) in whole.iter().enumerate() {
        assert_eq!(scale, 65536.0 / lost.exp2(), "step {}: the scale is halved with each skipped step", i + 1);
        let [start, end] = [format!("step {i} skipped: "), format!("scale is now {scale}")];
        let named = said.lines().filter(|line| line.starts_with(&start) && line.contains(&end)).count();
        let expected = usize::from(i > 0 && lost > whole[i - 1].1 && lost <= 10.0);
        assert_eq!(named, expected, "lines {start:?}, {end:?} in:\n{said}");
    }
    train("parts", 2, &["--max-steps", "3"]);
    train("parts", 1, &["--max-steps", "16", "--resume", "auto"]);
    assert_eq!(steps("parts"), whole, "the resumed run must equal the whole run");
    train("f32", 1, &["--max-steps", "1", "--set", "precision=f32"]);
    let line = &events(&setting.folder.at("f32"), "step")[0];
    assert!(line.get("loss_scale").is_none() && line.get("lost_steps").is_none(), "{line}");
}

/// The host enqueues later steps before it reads the loss scale of a step, with and without NCCL. The results are the same
/// as in a traced run, which reads each step at once.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn skipped_steps_match_steps_read_at_once() {
    let setting = sized(LENET, 8);
    let trace = setting.out("trace.json");
    let float = ["--set", "reduce.codec=float"];
    for ranks in [1, 2] {
        let train = |out: &str, more: &[&str]| {
            let more = [&float[..], more].concat();
            let said = gpu::train(&setting, out, ranks, &more, &[("TRIREME_EMULATED_DEVICES", "2")]).succeeded().stderr;
            let keys = ["step", "loss", "loss_scale", "lost_steps"];
            let steps = events(&setting.out(out), "step");
            let steps: Vec<String> = steps.iter().map(|s| keys.map(|key| s[key].to_string()).join(" ")).collect();
            let skipped: Vec<String> =
                said.lines().filter(|line| line.contains("skipped: a gradient")).map(String::from).collect();
            (steps, skipped, setting.digest(out))
        };
        let [ahead, at_once] = ["ahead", "at once"].map(|name| format!("{name} {ranks}"));
        let got = train(&ahead, &[]);
        assert_eq!(got, train(&at_once, &["--trace", &trace]), "{ranks} ranks");
        assert_eq!(got.0.len(), 22, "an epoch of 43 images");
        assert!(got.1.len() > 1, "no later step was skipped: {got:?}");
    }
}

/// Sets a weight that becomes -Inf in f16, after an activation that is always 1. ReLU turns the score of -Inf into 0,
/// so the loss stays finite. The activation's gradient is 0 times -Inf, which is NaN at any loss scale.
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
    state.progress.loss_scale = Some(LossScale { scale: 65536.0, good: 0, bad: 0, lost: 1 });
    state.write(checkpoint).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_loss_scale_below_its_minimum_ends_the_run() {
    let setting = sized(LENET, 8);
    for ranks in [1, 2] {
        let out = ranks.to_string();
        let more = ["--share-gpu", "--set", "epochs=2"];
        gpu::train(&setting, &out, ranks, &[&more[..], &["--max-steps", "1"]].concat(), &[]).succeeded();
        poison(&setting.folder.path().join(&out).join("checkpoints/step-00000001.h5"));
        let ended = gpu::train(&setting, &out, ranks, &[&more[..], &["--resume", "auto"]].concat(), &[]);
        // the loss scale starts at 2^16, so the 27th halving makes it less than the minimum of 2^-10
        let parts = ["27 steps in a row", "Inf or NaN", "precision = \"bf16\"", "schedule.base_lr", "data stats"];
        let said = ended.failed(1, &parts).stderr;
        assert!(!said.contains("is not finite"), "{said}");
        let steps = events(&setting.folder.at(&out), "step");
        assert_eq!(steps.len(), 1 + 27 + 1, "the first step, the skipped steps and the last one");
        assert!(
            steps[..28].iter().all(|step| step["loss"].is_f64()) && steps[28]["loss"].is_null(),
            "only the last step may have no loss"
        );
    }
}

/// If the forward pass overflows, no loss scale helps, and the error message names f16 as the cause.
#[test]
fn a_loss_that_is_lost_in_f16_says_so() {
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.5, 1e-6)\"]"));
    let huge = ["--share-gpu", "--set", &lists[0], "--set", &lists[1]];
    let ended = gpu::train(&sized(LENET, 8), "out", 2, &huge, &[]);
    ended.failed(1, &["step 1 ", "not finite", "every rank", "precision = \"bf16\"", "65,504"]);
}
