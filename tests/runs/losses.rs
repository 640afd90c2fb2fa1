//! Losses other than the cross-entropy, with the real binary. A network learns with each of them, the result is
//! bit-identical on any number of ranks and after a stop, and the log names the loss. Unsuitable keys are refused.

use support::images::DIGITS;
use support::mentions;
use support::program::events;
use support::setting::Setting;
use support::small_run::SmallRun;

/// A recipe with nine steps per epoch. In the short last step, a worker has at most one image.
const RECIPE: &str = r#"
epochs = 4
seed = 5
batch = 12
workers = 3
optimizer.momentum = 0.9
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

/// Recipe sections for each loss, and parts of the description that the log must contain.
const LOSSES: &[(&str, &[&str])] = &[
    ("kind = \"bce\"\nover_classes = \"sum\"", &["binary cross-entropy", "sum over classes"]),
    ("kind = \"bce\"\nover_classes = \"sum\"\nthreshold = 0.2\n[mix]\nmixup = 0.2", &["binary cross-entropy"]),
    ("kind = \"focal\"\ngamma = 1.5", &["focal", "gamma 1.5"]),
    (
        "kind = \"sigmoid_focal\"\nover_classes = \"sum\"",
        &["sigmoid focal", "gamma 2", "alpha 0.25", "sum over classes"],
    ),
];

#[test]
fn each_loss_is_learnt_on_any_number_of_ranks() {
    for (section, said) in LOSSES {
        println!("{section}");
        let setting = Setting::new(&format!("{RECIPE}[loss]\n{section}\n"), DIGITS, [98, 20]);
        let one = setting.trained("1", 1, &[]);
        setting.assert_stops_change_nothing("1", &[(3, "13")], 2, &[]);
        setting.assert_learns("1", 6, 6, 0.9);
        let start = events(&one, "start")[0]["facts"].to_string();
        mentions(&start, said);
    }
}

/// With ten classes, the mean of a row's losses is a tenth of their sum, and so is its gradient.
#[test]
fn the_mean_over_classes_is_a_tenth_of_the_sum() {
    let recipe = RECIPE.replace("momentum = 0.9", "momentum = 0.0");
    let setting = Setting::new(&format!("{recipe}[loss]\nkind = \"bce\"\n"), DIGITS, [36, 20]);
    setting.trained("mean", 1, &["--set", "schedule.base_lr=0.02", "--max-steps", "3"]);
    setting.trained("sum", 1, &["--set", "loss.over_classes=sum", "--max-steps", "3"]);
    for (mean, sum) in setting.losses("mean").iter().zip(setting.losses("sum")) {
        assert!((10.0 * mean - sum).abs() < 1e-4 * sum, "mean {mean}, sum {sum}");
    }
}

#[test]
fn keys_of_other_kinds_and_values_out_of_range_are_refused() {
    let small = SmallRun::new();
    small.refused_with(&["loss.gamma=2"], &["loss.gamma", "kind \"focal\" or \"sigmoid_focal\"", "\"cross_entropy\""]);
    small.refused_with(&["loss.kind=focal", "loss.over_classes=sum"], &["loss.over_classes", "kind \"bce\""]);
    small.refused_with(&["loss.kind=focal", "loss.gamma=-0.5"], &["loss.gamma=-0.5", ">= 0"]);
    small.refused_with(&["loss.kind=sigmoid_focal", "loss.alpha=1.5"], &["loss.alpha=1.5", "[0, 1]"]);
    small.refused_with(&["loss.kind=bce", "loss.threshold=1"], &["loss.threshold=1", "[0, 1)"]);
    small.refused_with(&["loss.kind=bcee"], &["loss.kind", "did you mean \"bce\""]);
}
