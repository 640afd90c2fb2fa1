//! Losses other than the cross-entropy, mixup and CutMix, and rare classes, with the real binary. A network learns with each of them, the
//! result is bit-identical on any number of ranks and after a stop, and the log names the loss. Unsuitable keys are refused.

use support::images::{DIGITS, Images, Record, THINGS};
use support::program::{events, numbers};
use support::setting::Setting;
use support::small_run::SmallRun;
use support::{mentions, weights};

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

/// A recipe with seven steps per epoch. In the short last step, a worker has at most one image.
const MIXED: &str = r#"
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
    let setting = Setting::new(MIXED, THINGS, [99, 20]);
    setting.assert_ranks_change_nothing(&[2, 3, 4], &[]);
    // the run is stopped in the middle of each epoch
    setting.assert_stops_change_nothing("1", &[(2, "4"), (1, "10")], 3, &[]);
    // the keys affect the results, so a resumed run must not change them
    let other = setting.train("parts", 1, &["--resume", "auto", "--set", "mix.prob=0.5"]);
    other.failed(2, &["mix.prob: absent", " 0.5 "]);
}

#[test]
fn mixing_changes_what_is_computed_and_its_absence_nothing() {
    let setting = Setting::new(MIXED, THINGS, [64, 20]);
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
    setting.assert_losses_near("never", "off", 1e-4);
    let facts = |out: &str| events(&setting.out(out), "start")[0]["facts"].to_string();
    assert!(facts("both").contains("mixup 0.8 or CutMix 1"), "{}", facts("both"));
    assert!(!facts("off").contains("mixup"), "{}", facts("off"));
}

#[test]
fn a_network_learns_mixed_digits() {
    let recipe = MIXED
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

fn four_workers() -> String {
    RECIPE.replace("epochs = 4", "epochs = 2").replace("workers = 3", "workers = 4")
}

/// Creates a data set in which two thirds of the images are relabelled as class 0.
fn uneven(more: &str) -> Setting {
    Setting::with(&format!("{}{more}", four_workers()), |dir| {
        Images::edited(dir, DIGITS, 99, 20, |id, record| record.label *= i64::from(id % 3 == 0))
    })
}

/// Checks that the result is bit-identical on 1 to 4 ranks and after a stop in the middle of each epoch.
#[track_caller]
fn assert_ranks_and_stops_change_nothing(setting: &Setting, more: &[&str]) {
    setting.assert_ranks_change_nothing(&[2, 3, 4], more);
    setting.assert_stops_change_nothing("1", &[(2, "4"), (3, "13")], 1, more);
}

#[test]
fn class_weights_keep_the_laws() {
    let setting = uneven("[loss]\nclass_weights = \"auto\"\n[mix]\nmixup = 0.4\n");
    assert_ranks_and_stops_change_nothing(&setting, &[]);
    let start = &events(&setting.out("1"), "start")[0]["facts"];
    let classes = start["classes"].as_str().expect("counts");
    let counts: Vec<u64> = classes.split(", ").map(|text| text.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(classes.starts_with("wave 0 ") && counts.len() == 10 && counts.iter().sum::<u64>() == 99, "{classes}");
    assert!(counts[0] > 60, "{classes}");
    assert_eq!(start["loss"], "class weights auto");
}

#[test]
fn balanced_draws_keep_the_laws() {
    let setting = uneven("[loss]\nkind = \"bce\"\nclass_weights = \"effective(0.9)\"\n");
    assert_ranks_and_stops_change_nothing(&setting, &["--set", "balanced=true"]);
    // an epoch has as many draws as the split has images
    let samples = |out: &str| events(&setting.out(out), "epoch").len();
    assert_eq!((samples("1"), events(&setting.out("1"), "step").len()), (2, 18));
    assert!(events(&setting.out("1"), "start")[0]["facts"]["order"].as_str().unwrap().starts_with("balanced"));
    setting.trained("plain", 1, &["--max-steps", "2"]);
    assert_ne!(setting.losses("plain")[..2], setting.losses("1")[..2]);
}

/// Equal class weights have no effect. The result also does not change if all class weights are multiplied by a
/// constant or if the number of workers changes.
#[test]
fn a_step_is_divided_by_its_sum_of_weights() {
    let setting = uneven("");
    let weights = "[1, 2, 0.5, 4, 1, 3, 1, 0.25, 2, 1]";
    let double = "[2, 4, 1, 8, 2, 6, 2, 0.5, 4, 2]";
    let losses = |out: &str, more: &[&str]| {
        setting.trained(out, 1, &[&["--max-steps", "9"], more].concat());
        setting.losses(out)
    };
    #[track_caller]
    fn assert_near(a: &[f64], b: &[f64]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * a), "{a:?} and {b:?}");
    }
    let given = |weights: &str| format!("loss.class_weights={weights}");
    let one = losses("given", &["--set", &given(weights)]);
    assert_near(&one, &losses("double", &["--set", &given(double)]));
    assert_near(&one, &losses("one worker", &["--set", &given(weights), "--set", "workers=1"]));
    let plain = losses("plain", &[]);
    assert_near(&plain, &losses("equal", &["--set", &given("[3, 3, 3, 3, 3, 3, 3, 3, 3, 3]")]));
    assert!((one[0] - plain[0]).abs() > 1e-3, "{one:?} and {plain:?}");
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let small = SmallRun::new();
    small.refused_with(
        &["loss.class_weights=[1, 2, 3]"],
        &["loss.class_weights", "3 weights", "10 classes", "\"auto\""],
    );
    small.refused_with(&["loss.class_weights=[1, 1, 1, 1, 1, 1, 1, 1, 1, 0]"], &["loss.class_weights", "numbers > 0"]);
    small.refused_with(&["loss.class_weights=[1, -1]"], &["loss.class_weights", "numbers > 0"]);
    small.refused_with(&["loss.class_weights=effective(1)"], &["loss.class_weights", "beta in (0, 1)"]);
    small.refused_with(
        &["loss.class_weights=inverse"],
        &["loss.class_weights=inverse", "\"auto\"", "\"effective(beta)\""],
    );
    small.refused_with(&["loss.class_weights=2"], &["loss.class_weights=2", "\"auto\""]);
    small.refused_with(&["balanced=true", "shuffle=window(2)"], &["balanced", "shuffle = \"full\""]);
    // a record with an invalid label: an error that names it, or it is skipped
    let odd = |id: u64, record: &mut Record| record.label = if id == 12 { 99 } else { record.label };
    let small = SmallRun::of(|dir| Images::edited(dir, DIGITS, 48, 10, odd));
    let balanced = ["--set", "balanced=true"];
    for ranks in [0, 2] {
        small.train(ranks, &balanced).failed(1, &["train-00001-of-00004.tfrecord", "record 0", "label 99"]);
    }
    small.train(2, &[&balanced[..], &["--set", "loader.on_corrupt=skip"]].concat()).succeeded();
    // with 10 images of 5 classes and three copies per draw, an epoch has 4 draws
    let small = SmallRun::of(|dir| Images::edited(dir, DIGITS, 10, 10, |id, record| record.label = id as i64 % 5));
    small.refused_with(
        &["balanced=true", "augment.repeats=3"],
        &["balanced", "augment.repeats = 3", "4 draws", "5 classes", "1 class ", "at most 2"],
    );
    small.train(2, &[&balanced[..], &["--set", "augment.repeats=2"]].concat()).succeeded();
}

/// If a channel has a single value in a step, the running variance stays unchanged, regardless of which worker has the image. A warning is
/// printed before the first step. Two workers with one value each produce the same variance as one worker with both values.
#[test]
fn one_value_per_channel_leaves_the_running_variance() {
    const NET: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
 { name = "conv", op = "conv", channels = 4, kernel = 3, stride = 2, relu = true },
 { name = "pool", op = "avgpool" },
 { name = "bn", op = "norm" },
 { name = "flatten", op = "flatten" },
 { name = "fc", op = "linear", features = "classes" },
]
"#;
    // 25 images: three full steps and a step with a single image
    let setting = Setting::new(&four_workers().replace("workers = 4", ""), DIGITS, [25, 9]);
    let net = setting.folder.write("bn.toml", NET);
    let statistics = |out: &str, ranks: usize, more: &[&str]| {
        let model = format!("model={net}");
        let still = ["--set", &model, "--set", "schedule.base_lr=1e-30", "--set", "epochs=1"];
        let ended = setting.train(out, ranks, &[&still, more].concat()).succeeded();
        let model = weights::model(&setting.out(out));
        let bn = model.layers.iter().find(|layer| layer.name == "bn").unwrap();
        let of = |field: &str| bn.tensors.iter().find(|tensor| tensor.0 == field).unwrap().2.clone();
        (of("running_mean"), of("running_var"), ended)
    };
    let at_eight = ["--set", "batch=8", "--set", "workers=2"];
    let (mean, var, _) = statistics("before", 0, &[&at_eight[..], &["--max-steps", "3"]].concat());
    for ranks in [0, 2] {
        let (mean_after, var_after, ended) = statistics(&format!("whole-{ranks}"), ranks, &at_eight);
        assert_eq!(var_after, var, "{ranks} ranks");
        assert_ne!(mean_after, mean, "{ranks} ranks");
        ended.says(&["warning: ", " bn: ", "last step", "1 image ", "25 images, batch = 8, workers = 2"]);
    }
    let pairs = |out: &str, workers: &str| statistics(out, 0, &["--set", "batch=5", "--set", workers]);
    let (one, many) = (pairs("one", "workers=1"), pairs("many", "workers=5"));
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * a.abs().max(1e-6);
    assert!(one.1.iter().zip(&many.1).all(close), "{:?} and {:?}", one.1, many.1);
    many.2.says(&["warning: ", " bn: ", "each step", "1 image"]);
    assert!(!one.2.stderr.contains(" bn: "), "{}", one.2.stderr);
}
