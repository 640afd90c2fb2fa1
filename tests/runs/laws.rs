//! The guarantees about ranks, checked with the real binary under `mpirun`. The number of ranks changes the run time, never the result.
//! Every sample counts once in training and evaluation. A run writes one model, which does not depend on the ranks.

use std::path::Path;

use loaders::ImageSpec;
use serde_json::Value;

use support::images::{DIGITS, THINGS};
use support::numerics::assert_near;
use support::program::{events, files, run, sets};
use support::setting::Setting;
use support::weights::{Tensors, model, tensors};

/// A recipe with dropout and without batch normalisation.
const LENET: &str = r#"
model = "lenet"
epochs = 3
seed = 5
batch = 8
workers = 4
optimizer.momentum = 0.9
optimizer.weight_decay = 1e-4
schedule.base_lr = 0.001
augment.train = ["normalize"]
"#;

/// A recipe with batch normalisation, random transforms, and a learning rate with warm-up and decay.
const RESNET: &str = r#"
model = "resnet20"
epochs = 3
seed = 7
batch = 16
workers = 4
optimizer.momentum = 0.9
optimizer.nesterov = true
optimizer.weight_decay = 1e-4
schedule.kind = "cosine"
schedule.base_lr = 0.001
schedule.warmup_epochs = 0.5
augment.train = ["pad_crop(4)", "flip", "normalize"]
"#;

/// Returns the output of `trireme eval --json`.
#[track_caller]
fn score(setting: &Setting, out: &str, ranks: usize) -> String {
    let args = ["eval", &model_path(out), "--data", &setting.data, "--batch", "16", "--threads", "1", "--json"];
    run(ranks, &args).succeeded().stdout
}

fn model_path(out: &str) -> String {
    Path::new(out).join("model.h5").display().to_string()
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Checks that both runs computed the same: the same samples in every step, losses that differ only by rounding, which
/// grows with the steps, and the same scores.
#[track_caller]
fn assert_same_run(label: &str, got: &str, expected: &str, steps: usize) {
    let (lines, reference) = (events(got, "step"), events(expected, "step"));
    assert_eq!((lines.len(), reference.len()), (steps, steps), "{label}");
    for (line, other) in lines.iter().zip(&reference) {
        let step = &line["step"];
        for exact in ["step", "epoch", "lr", "samples"] {
            assert_eq!(line[exact], other[exact], "{label}, step {step}: {exact}");
        }
        let tolerance = if number(step) <= 10.0 { 1e-5 } else { 1e-3 };
        assert_near(&format!("{label}, loss of step {step}"), number(&line["loss"]), number(&other["loss"]), tolerance);
    }
    let (evals, reference) = (events(got, "eval"), events(expected, "eval"));
    assert_eq!(evals.len(), reference.len(), "{label}");
    for (eval, other) in evals.iter().zip(&reference) {
        for exact in ["split", "top1", "top5", "count", "step", "epoch"] {
            assert_eq!(eval[exact], other[exact], "{label}: {exact} of {eval}");
        }
    }
}

/// Returns everything in model.h5 except the numbers that rounding may change.
fn contents(out: &str) -> impl PartialEq + std::fmt::Debug {
    let m = model(out);
    let layers: Vec<_> = m.layers.iter().map(|l| (l.name.clone(), shapes(&l.tensors))).collect();
    let scores: Vec<String> = m.scores.into_keys().collect();
    let texts = (m.network, m.recipe, m.classes, m.preprocess);
    (texts, m.input, m.image, m.mean, m.std, m.epoch, m.step, scores, layers)
}

fn shapes(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<(String, Vec<usize>)> {
    tensors.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect()
}

/// Checks the files of a run: one model, checkpoints including one of the last step, the log and the recipe. There must be no other files.
#[track_caller]
fn assert_one_model(out: &str, steps: u64) {
    let (checkpoints, others): (Vec<_>, Vec<_>) =
        files(out).into_iter().partition(|file| file.starts_with("checkpoints/"));
    assert_eq!(others, ["metrics.jsonl", "model.h5", "recipe.toml"]);
    let written = events(out, "checkpoint").iter().map(|e| e["step"].as_u64()).collect::<Vec<_>>();
    assert_eq!(written.last(), Some(&Some(steps)));
    let written: Vec<_> = written.iter().flatten().map(|step| format!("checkpoints/step-{step:08}.h5")).collect();
    assert_eq!(checkpoints, written);
    assert_eq!((events(out, "start").len(), events(out, "end").len()), (1, 1));
}

/// Compares 60 steps on each of these numbers of ranks with one rank.
#[track_caller]
fn assert_same_runs(setting: &Setting, ranks: &[usize]) {
    let one = setting.trained("1", 1, &["--max-steps", "60"]);
    let mut outs = vec![one.clone()];
    for &n in ranks {
        let out = setting.trained(&n.to_string(), n, &["--max-steps", "60"]);
        assert_same_run(&format!("{n} ranks"), &out, &one, 60);
        assert_eq!(contents(&out), contents(&one), "{n} ranks");
        outs.push(out);
    }
    for (out, ranks) in outs.iter().zip([&[1], ranks].concat()) {
        assert_eq!(events(out, "start")[0]["ranks"], ranks);
        assert_one_model(out, 60);
        let recipe = |out: &str| std::fs::read_to_string(Path::new(out).join("recipe.toml")).unwrap();
        assert_eq!(recipe(out), recipe(&one));
    }
}

/// The last batch of each epoch has 3 images for 4 workers, so one worker gets no image.
#[test]
fn ranks_change_nothing_without_batch_norm() {
    let setting = Setting::new(LENET, DIGITS, [203, 67]);
    assert_same_runs(&setting, &[2, 3, 4]);
    setting.assert_learns("1", 10, 10, 0.7);
}

/// Trains on 331 images in batches of 16. The last batch of an epoch has 11.
#[test]
fn ranks_change_nothing_with_batch_norm_and_random_transforms() {
    let setting = Setting::new(RESNET, THINGS, [331, 67]);
    assert_same_runs(&setting, &[2, 3, 4]);
}

/// Runs 5 workers on 2 and 3 ranks with a batch of 11 and a short last batch of 2.
#[test]
fn workers_may_be_divided_unevenly() {
    let recipe = LENET.replace("workers = 4", "workers = 5").replace("batch = 8", "batch = 11");
    let setting = Setting::new(&recipe, DIGITS, [57, 23]);
    let more = ["--max-steps", "10"];
    let one = setting.trained("1", 1, &more);
    for n in [2, 3, 5] {
        let out = setting.trained(&n.to_string(), n, &more);
        assert_same_run(&format!("{n} ranks"), &out, &one, 10);
        assert_eq!(contents(&out), contents(&one), "{n} ranks");
    }
}

/// Without batch normalisation, a step's gradient does not depend on how its batch is divided. Compares two workers on
/// two ranks with one worker that has the whole batch.
#[test]
fn gradients_of_two_ranks_match_one_rank_with_double_batch() {
    let plain = LENET.replace("momentum = 0.9", "momentum = 0.0").replace("weight_decay = 1e-4", "weight_decay = 0.0");
    let recipe = plain.replace("batch = 8", "batch = 16");
    let setting = Setting::new(&recipe, DIGITS, [64, 8]);
    let step = |name: &str, ranks, workers: &str, lr: &str| {
        tensors(&setting.trained(name, ranks, &["--max-steps", "1", "--set", workers, "--set", lr]))
    };
    let start = step("start", 1, "workers=1", "schedule.base_lr=0");
    let one = step("one", 1, "workers=1", "schedule.base_lr=1");
    let two = step("two", 2, "workers=2", "schedule.base_lr=1");
    let (mut largest, mut off) = (0f32, 0f32);
    for (name, (_, before)) in &start {
        let gradient =
            |after: &Tensors| -> Vec<f32> { before.iter().zip(&after[name].1).map(|(a, b)| a - b).collect() };
        let (one, two) = (gradient(&one), gradient(&two));
        let length = one.iter().map(|g| g.abs()).fold(0.0, f32::max);
        let difference = one.iter().zip(&two).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(one.iter().chain(&two).all(|g| g.is_finite()), "{name}: a gradient is not finite");
        assert!(length > 0.0, "{name} has no gradient");
        println!("{name}: largest gradient {length:e}, difference {difference:e}, relative {:e}", difference / length);
        largest = largest.max(length);
        off = off.max(difference / length.max(1.0));
    }
    assert!(off <= 1e-6, "gradients differ by {off:e}; the largest is {largest:e}");
}

/// Each number of ranks prints the same bytes, and they contain the last score of the training run.
#[test]
fn every_number_of_ranks_prints_the_same_score() {
    let setting = Setting::new(LENET, DIGITS, [120, 131]);
    let out = setting.trained("out", 2, &["--max-steps", "12"]);
    let one = score(&setting, &out, 0);
    for ranks in 1..=3 {
        assert_eq!(score(&setting, &out, ranks), one, "{ranks} ranks");
    }
    let score: Value = serde_json::from_str(&one).unwrap_or_else(|e| panic!("{e}: {one}"));
    let evals = events(&out, "eval");
    let last = evals.last().expect("an evaluation");
    for exact in ["split", "top1", "top5", "count"] {
        assert_eq!(score[exact], last[exact], "{exact}");
    }
    assert_eq!(score["count"], 131);
    assert_near("loss", number(&score["loss"]), number(&last["loss"]), 1e-6);
    for (name, value) in model(&out).scores {
        let key = name.strip_prefix("test/").unwrap_or_else(|| panic!("not a score of the test split: {name}"));
        assert_eq!(value, number(&last[key]), "{name}");
    }
}

/// Without `workers` in the recipe, the number of ranks at the first start becomes the number of workers. Later runs on
/// any number of ranks read it from the run's recipe.toml and from model.h5.
#[test]
fn without_workers_in_the_recipe_there_is_one_per_rank() {
    let setting = Setting::new(&LENET.replace("workers = 4\n", ""), DIGITS, [40, 9]);
    let out = setting.trained("3", 3, &["--max-steps", "2"]);
    let resolved = std::fs::read_to_string(Path::new(&out).join("recipe.toml")).unwrap();
    assert!(resolved.lines().any(|line| line == "workers = 3"), "{resolved}");
    assert!(model(&out).recipe.lines().any(|line| line == "workers = 3"));
    assert_eq!(events(&out, "start")[0]["workers"], 3);
    let resolved = Path::new(&out).join("recipe.toml").display().to_string();
    let again = setting.folder.at("again");
    let args = ["train", &resolved, "--data", &setting.data, "--out", &again, "--threads", "1", "--max-steps", "2"];
    run(2, &args).succeeded();
    assert_same_run("the resolved recipe on 2 ranks", &again, &out, 2);
}

/// Trains with 8 workers and an integer codec on one rank and on each of these numbers of ranks. model.h5, the digest of all parameters,
/// statistics and momenta, and all losses must be equal. Each epoch has three steps, and some workers have no image in the last one.
#[track_caller]
fn assert_same_bits(recipe: &str, spec: ImageSpec, codec: &[&str], ranks: &[usize]) {
    let setting = Setting::new(
        &recipe.replace("workers = 4", "workers = 8").replace("batch = 8\n", "batch = 16\n"),
        spec,
        [37, 19],
    );
    println!("{codec:?}");
    let one = setting.assert_ranks_change_nothing(ranks, &[&sets(codec)[..], &["--max-steps", "8"]].concat());
    let samples = |out: &str| events(out, "step").iter().map(|line| line["samples"].clone()).collect::<Vec<_>>();
    assert_eq!((setting.digest("1").len(), samples(&one).len()), (26, 8));
    for ranks in ranks {
        assert_eq!(samples(&setting.out(&ranks.to_string())), samples(&one), "{codec:?} on {ranks} ranks");
    }
}

#[test]
fn exact_gives_the_same_bits_on_any_number_of_ranks() {
    let recipe = RESNET.replace("\"flip\"", "\"alternating_flip\"");
    assert_same_bits(&recipe, THINGS, &["reduce.codec=exact"], &[2, 3, 4, 8]);
}

/// Tests augmentation policies and three copies of each image in a batch. Each copy has its own random draws.
#[test]
fn policies_and_repeats_give_the_same_bits_on_any_number_of_ranks() {
    let list = "\"vertical_flip\", \"flip\", \"rand_augment(3, 20)\", \"trivial_augment\", \"perspective(0.5)\"";
    let recipe = LENET.replace("augment.train = [", &format!("augment.repeats = 3\naugment.train = [{list}, "));
    assert_same_bits(&recipe, DIGITS, &["reduce.codec=exact"], &[2, 3, 4]);
}

/// A network with dropout on the image, at the rate RATE.
const DROPOUT: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
    { name = "flat", op = "flatten" },
    { name = "dropout", op = "dropout", rate = RATE },
    { name = "fc", op = "linear", features = "classes" },
]
"#;

/// With the same dropout mask, two copies would have the same loss as a single copy. Without dropout they do.
#[test]
fn each_copy_of_an_image_has_its_own_dropout_mask() {
    for (rate, differs) in [("0.0", false), ("0.5", true)] {
        let setting = Setting::new(&LENET.replace("\"lenet\"", "\"net.toml\""), DIGITS, [20, 10]);
        setting.folder.write("net.toml", DROPOUT.replace("RATE", rate));
        let loss = |batch: &str, repeats: &str| {
            let keys = [&format!("batch={batch}"), "workers=1", &format!("augment.repeats={repeats}")];
            setting.trained(batch, 1, &[&sets(&keys)[..], &["--max-steps", "1"]].concat());
            setting.losses(batch)[0]
        };
        let (once, twice) = (loss("1", "1"), loss("2", "2"));
        assert_eq!((once - twice).abs() > 1e-4 * once, differs, "rate {rate}: {once} and {twice}");
    }
}

#[test]
fn ternary_gives_the_same_bits_on_any_number_of_ranks() {
    let small = "reduce.bucket_mb=0.2";
    assert_same_bits(RESNET, THINGS, &["reduce.codec=ternary", small, "reduce.overlap=true"], &[2, 3, 4, 8]);
}

#[test]
fn error_feedback_and_int8_give_the_same_bits_too() {
    let lenet = LENET.replace("\"lenet\"", "\"lenet-caffe\"");
    assert_same_bits(&lenet, DIGITS, &["reduce.codec=ternary", "reduce.error_feedback=true"], &[3, 8]);
    assert_same_bits(&lenet, DIGITS, &["reduce.codec=int8", "reduce.logits=true"], &[3, 8]);
}

/// bf16 is not bit-identical. The losses stay close to those of float, and the log reports the cost of the exchange.
#[test]
fn bf16_stays_near_float() {
    let setting = Setting::new(LENET, DIGITS, [203, 19]);
    let float = setting.trained("float", 2, &["--max-steps", "12"]);
    let codec = ["--max-steps", "12", "--set", "reduce.codec=bf16", "--set", "reduce.error_feedback=true"];
    let bf16 = setting.trained("bf16", 2, &codec);
    for (line, other) in events(&bf16, "step").iter().zip(events(&float, "step")) {
        assert_near(&format!("loss of step {}", line["step"]), number(&line["loss"]), number(&other["loss"]), 0.02);
    }
    let [of_float, of_bf16] = [&float, &bf16].map(|out| events(out, "exchange"));
    assert_eq!((of_float.len(), of_bf16.len()), (1, 1));
    assert_eq!(of_bf16[0]["bytes"].as_u64().map(|b| 2 * b), of_float[0]["bytes"].as_u64());
    assert!(of_bf16[0]["float_ms"].is_f64() && of_float[0]["float_ms"].is_null(), "{of_bf16:?}");
}

/// With 2 workers, a step of ResNet-20 passes at most a ninth as many bytes to MPI with codec `ternary` as with codec `float`.
#[test]
fn ternary_sends_a_ninth_of_floats_bytes() {
    let setting = Setting::new(&RESNET.replace("workers = 4", "workers = 2"), THINGS, [64, 8]);
    let codec = ["--set", "reduce.codec=ternary", "--set", "reduce.min_elements=432", "--set", "epochs=4"];
    let out = setting.trained("out", 2, &[&codec, ["--max-steps", "12"].as_slice()].concat());
    let costs = &events(&out, "exchange")[0];
    let (bytes, float) = (number(&costs["bytes"]), number(&costs["float_bytes"]));
    assert_eq!(costs["codec"], "ternary");
    assert!((4.0 * 269_722.0..4.0 * 271_000.0).contains(&float), "{costs}");
    assert!(float / bytes >= 9.0, "{costs}");
}
