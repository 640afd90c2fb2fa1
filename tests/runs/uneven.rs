//! Rare classes with the real binary. With class weights and balanced sampling, results are bit-identical on any number
//! of ranks and after a stop, and the loss of a step is divided by the sum of its weights. Also tests invalid settings.

use support::images::{DIGITS, Images, Record};
use support::program::events;
use support::setting::Setting;
use support::small_run::SmallRun;
use support::weights;

/// A recipe with nine steps per epoch. In the short last step, a worker has at most one image.
const RECIPE: &str = r#"
epochs = 2
seed = 5
batch = 12
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

/// Creates a data set in which two thirds of the images are relabelled as class 0.
fn uneven(more: &str) -> Setting {
    Setting::with(&format!("{RECIPE}{more}"), |dir| {
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

/// If a channel has a single value in a step, the running variance stays unchanged, regardless of which worker has the
/// image. A warning is printed before the first step. Two workers with one value each produce the same variance as one
/// worker with both values.
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
    let setting = Setting::new(&RECIPE.replace("workers = 4", ""), DIGITS, [25, 9]);
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
