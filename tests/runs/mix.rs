//! Mixup and CutMix with the real binary: bit-identical results on any number of ranks and after a stop in the middle of
//! an epoch, the loss of mixed labels, and invalid settings.

use support::images::{DIGITS, THINGS};
use support::program::{events, numbers};
use support::setting::Setting;
use support::small_run::SmallRun;

/// A recipe with seven steps per epoch. In the short last step, a worker has at most one image.
const RECIPE: &str = r#"
model = "resnet20"
epochs = 2
seed = 5
batch = 16
workers = 4
label_smoothing = 0.1
optimizer.momentum = 0.9
schedule.base_lr = 0.01
augment.train = ["pad_crop(4)", "flip", "normalize"]
mix.mixup = 0.8
mix.cutmix = 1.0
reduce.codec = "exact"
"#;

#[test]
fn ranks_and_stops_change_no_bit() {
    let setting = Setting::new(RECIPE, THINGS, [99, 20]);
    setting.assert_ranks_change_nothing(&[2, 3, 4], &[]);
    // the run is stopped in the middle of each epoch
    setting.assert_stops_change_nothing("1", &[(2, "4"), (1, "10")], 3, &[]);
    // the keys affect the results, so a resumed run must not change them
    let other = setting.train("parts", 1, &["--resume", "auto", "--set", "mix.prob=0.5"]);
    other.failed(2, &["mix.prob: absent", " 0.5 "]);
}

#[test]
fn mixing_changes_what_is_computed_and_its_absence_nothing() {
    let setting = Setting::new(RECIPE, THINGS, [64, 20]);
    let run = |out: &str, more: &[&str]| {
        setting.trained(out, 1, &[&["--max-steps", "4"], more].concat());
        setting.digest(out)
    };
    let both = run("both", &[]);
    let mixup = run("mixup", &["--unset", "mix.cutmix"]);
    let cutmix = run("cutmix", &["--unset", "mix.mixup"]);
    let off = run("off", &["--unset", "mix"]);
    let never = run("never", &["--set", "mix.prob=0"]);
    assert!(both != mixup && mixup != cutmix && both != cutmix && both != off);
    // with a probability of 0, images equal those without the section, and the loss is equal except for rounding
    assert_ne!(mixup, never);
    for (a, b) in setting.losses("off").iter().zip(setting.losses("never")) {
        assert!((a - b).abs() <= 1e-4 * a, "loss {a} without mixing, {b} with prob = 0");
    }
    let facts = |out: &str| events(&setting.out(out), "start")[0]["facts"].to_string();
    assert!(facts("both").contains("mixup 0.8 or CutMix 1"), "{}", facts("both"));
    assert!(!facts("off").contains("mixup"), "{}", facts("off"));
}

/// A network can learn from digits that are mixed in each step.
#[test]
fn a_network_learns_mixed_digits() {
    let recipe = RECIPE
        .replace("resnet20", "lenet")
        .replace("\"pad_crop(4)\", \"flip\", ", "")
        .replace("epochs = 2", "epochs = 8");
    let setting = Setting::new(&recipe, DIGITS, [128, 64]);
    let out = setting.trained("out", 2, &[]);
    setting.assert_learns("out", 8, 8, 0.9);
    let scores = numbers(&out, "eval", "loss");
    assert!(scores[7] < scores[0], "{scores:?}");
}

#[test]
fn shares_of_one_image_and_values_out_of_range_are_refused() {
    let small = SmallRun::new();
    let refused = |set: &str, parts: &[&str]| small.refused(2, &["--set", "mix.mixup=0.8", "--set", set], parts);
    refused("workers=8", &["mix.mixup", "batch = 8 ", "8 workers", "at least 16"]);
    refused("mix.mixup=-1", &["mix.mixup=-1", ">= 0", "got -1"]);
    refused("mix.cutmix=nan", &["mix.cutmix", "finite number"]);
    refused("mix.prob=1.5", &["mix.prob=1.5", "[0, 1]", "got 1.5"]);
    refused("mix.switch=0.5", &["mix.switch=0.5", "without both", "mix.mixup", "mix.cutmix"]);
    small.refused(2, &["--set", "mix.prob=0.5"], &["mix.prob=0.5", "without mix.mixup", "mix.cutmix"]);
    // if the number of workers follows the ranks, it is known only at the start
    let silent = ["--unset", "workers", "--set", "batch=3", "--set", "mix.cutmix=1"];
    small.train(2, &silent).failed(2, &["mix.cutmix", "batch = 3 ", "2 workers"]);
}
