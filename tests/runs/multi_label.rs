//! Multi-label images with the real binary: bit-identical results on any number of ranks and after a stop, scores that match their
//! definitions, predictions and exports. Also tests which settings are refused. The last functions help the tests of regression, too.

use std::fs;

use loaders::Dataset;
use serde_json::Value;

use crate::evaluation::evaluation_file;
use support::images::{DIGITS, Images, SEVERAL};
use support::mentions;
use support::program::{events, events_without_times, numbers, run, sets};
use support::setting::Setting;
use support::small_run::SmallRun;
use support::weights::{model, model_at};

/// A recipe with nine steps per epoch. In the short last step, a worker has at most one image.
const RECIPE: &str = r#"
epochs = 6
seed = 5
batch = 12
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.05
loss.kind = "bce"
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::with(RECIPE, |dir| Images::several(dir, DIGITS, 98, 40))
}

fn eval(model: &str, ranks: usize, more: &[&str]) -> Value {
    run(ranks, &[&["eval", model, "--threads", "1", "--batch", "8", "--json"], more].concat()).succeeded().json()
}

#[test]
fn equal_bits_on_any_number_of_ranks_and_after_a_stop() {
    let setting = setting();
    let (scores, one) = (assert_equal_bits(&setting), setting.out("1"));
    setting.assert_learns("1", 9, 9, 0.8);
    let last = &scores[scores.len() - 1];
    for name in ["map", "micro_f1", "macro_f1", "top1", "top5", "loss"] {
        assert!(last[name].as_f64().is_some_and(|score| score > 0.0), "{name}: {last}");
    }
    assert!(last["map"].as_f64() > scores[0]["map"].as_f64(), "{scores:?}");
    let start = events(&one, "start")[0]["facts"].to_string();
    mentions(&start, &["binary cross-entropy", "mean over classes"]);
}

/// Mixed images, smoothed and thresholded targets, and the focal loss are also independent of the number of ranks.
#[test]
fn other_settings_combine_with_several_labels() {
    let setting = setting();
    let ways: [&[&str]; 3] = [
        &["mix.mixup=0.5", "mix.cutmix=1.0", "label_smoothing=0.1"],
        &["mix.mixup=0.5", "loss.threshold=0.2", "loss.over_classes=sum", "schedule.base_lr=0.01"],
        &["loss.kind=sigmoid_focal", "ema.decay=0.9", "eval.flip=true"],
    ];
    assert_keys_combine(&setting, &ways);
}

/// Extracts the images of the test split and returns the probability of every class from `trireme predict`.
fn predicted(setting: &Setting, out: &str) -> Vec<Vec<f64>> {
    let row = |line: &Value| {
        let mut row = vec![f64::NAN; SEVERAL as usize];
        for class in line["classes"].as_array().unwrap() {
            row[class["label"].as_u64().unwrap() as usize] = class["probability"].as_f64().unwrap();
        }
        assert!(row.iter().all(|p| *p > 0.0 && *p < 1.0), "{line}");
        row
    };
    predictions(setting, out, &["--threshold", "0"]).iter().map(row).collect()
}

fn truth(setting: &Setting) -> Vec<Vec<bool>> {
    let split = Dataset::open(&setting.images.dir).unwrap().split("test").unwrap();
    let mut copy = Vec::new();
    let row = |id| {
        let classes = split.classes_of(&split.record(id, &mut copy).unwrap().0).unwrap();
        (0..SEVERAL as u32).map(|class| classes.contains(&class)).collect()
    };
    (0..split.len()).map(row).collect()
}

/// Computes the average precision by its definition: for each image of the class, the share of the class among images
/// with at least its probability, averaged over these images.
fn average_precision(truth: &[bool], p: &[f64]) -> f64 {
    let own: Vec<f64> = truth.iter().zip(p).filter(|(own, _)| **own).map(|(_, p)| *p).collect();
    let share = |least: &f64| {
        let (mut right, mut all) = (0.0, 0.0);
        for (own, _) in truth.iter().zip(p).filter(|(_, p)| *p >= least) {
            all += 1.0;
            right += f64::from(u8::from(*own));
        }
        right / all
    };
    own.iter().map(share).sum::<f64>() / own.len() as f64
}

#[test]
fn scores_are_what_the_definitions_say() {
    let setting = setting();
    let out = setting.trained("out", 2, &[]);
    let found = eval(&out, 0, &[]);
    for ranks in [2, 3, 4] {
        assert_eq!(eval(&out, ranks, &[]), found, "{ranks} ranks");
    }
    let (p, truth) = (predicted(&setting, &out), truth(&setting));
    let column = |class: usize| {
        let (own, p): (Vec<bool>, Vec<f64>) = truth.iter().zip(&p).map(|(own, p)| (own[class], p[class])).unzip();
        (own, p)
    };
    let near = |got: &Value, want: f64, what: &str| {
        assert!((got.as_f64().unwrap() - want).abs() < 1e-6, "{what}: expected {want}, got {got}");
    };
    let (mut sum, mut f1, mut micro) = (0.0, 0.0, [0.0; 2]);
    for class in 0..SEVERAL as usize {
        let (own, p) = column(class);
        let precision = average_precision(&own, &p);
        let row = &found["per_class"][class];
        near(&row["average_precision"], precision, "average precision");
        let count =
            |of: &dyn Fn((&bool, &f64)) -> bool| own.iter().zip(&p).filter(|one| of((one.0, one.1))).count() as f64;
        let [images, taken, right] =
            [count(&|(own, _)| *own), count(&|(_, p)| *p > 0.5), count(&|(own, p)| *own && *p > 0.5)];
        for (name, number) in [("images", images), ("predicted", taken), ("right", right)] {
            near(&row[name], number, name);
        }
        sum += precision;
        f1 += 2.0 * right / (images + taken);
        micro = [micro[0] + 2.0 * right, micro[1] + images + taken];
    }
    near(&found["map"], sum / SEVERAL as f64, "map");
    near(&found["macro_f1"], f1 / SEVERAL as f64, "macro_f1");
    near(&found["micro_f1"], micro[0] / micro[1], "micro_f1");
    let loss = |own: bool, p: f64| -if own { p.ln() } else { (1.0 - p).ln() };
    let losses = truth.iter().zip(&p).flat_map(|(own, p)| own.iter().zip(p).map(|(own, p)| loss(*own, *p)));
    near(&found["loss"], losses.sum::<f64>() / (40 * SEVERAL) as f64, "loss");
    let top = |p: &[f64]| (0..p.len()).reduce(|best, c| if p[c] > p[best] { c } else { best }).unwrap();
    let hits = truth.iter().zip(&p).filter(|(own, p)| own[top(p)]).count();
    near(&found["top1"], hits as f64 / 40.0, "top1");
    // model.h5 contains the same scores
    let model = model(&out);
    assert!(model.multi_label);
    near(&found["map"], model.scores["test/map"], "model.h5");
}

#[test]
fn the_best_by_mean_average_precision_is_kept() {
    let setting = setting();
    let keys =
        ["checkpoint.best_by=map", "checkpoint.keep=1", "schedule.kind=exponential", "schedule.gamma=1.6", "epochs=3"];
    let out = setting.trained("out", 2, &sets(&keys));
    assert_best(&eval(&out, 0, &["--best"]), &out, "map", false);
    // single-label images have a mean average precision, too
    let one = Setting::new(&RECIPE.replace("loss.kind = \"bce\"\n", ""), DIGITS, [24, 20]);
    let ran =
        |ranks| one.trained(&format!("one-{ranks}"), ranks, &["--set", "checkpoint.best_by=map", "--set", "epochs=2"]);
    let (a, b) = (ran(1), ran(3));
    assert_eq!(scores(&a), scores(&b));
    let map = eval(&a, 0, &[])["map"].as_f64().unwrap();
    assert!((scores(&a)[1]["map"].as_f64().unwrap() - map).abs() < 1e-6);
}

#[test]
fn tables_sheets_and_predictions() {
    let setting = setting();
    // the run is so short that the model still makes mistakes
    let out = setting.trained("out", 0, &["--max-steps", "9"]);
    let [csv, sheet] = ["each.csv", "errors.png"].map(|name| setting.folder.at(name));
    let text = run(0, &["eval", &out, "--csv", &csv, "--errors", &sheet]).succeeded().stdout;
    assert!(text.contains("mAP ") && text.contains("micro-F1 ") && text.contains("wave 4"), "{text}");
    let table = fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "image,shard,record,labels,classes,predicted,predicted_classes,probabilities,loss,file");
    assert_eq!(lines.len(), 41);
    for (line, own) in lines[1..].iter().zip(truth(&setting)) {
        let labels: Vec<String> = (0..SEVERAL as usize).filter(|c| own[*c]).map(|c| c.to_string()).collect();
        assert_eq!(line.split(',').nth(3), Some(labels.join(";").as_str()), "{line}");
    }
    assert!(image::open(&sheet).unwrap().width() > 100);
    // the classes above a threshold, as CSV and as text
    let all = predicted(&setting, &out);
    let photos = setting.folder.at("photos");
    for (threshold, more) in [(0.5, &[][..]), (0.2, &["--threshold", "0.2"]), (1.0, &["--threshold", "1"])] {
        let count = all.iter().flatten().filter(|p| **p > threshold).count();
        let csv = run(0, &[&["predict", &out, &photos, "--csv"], more].concat()).succeeded().stdout;
        assert_eq!(csv.lines().count(), 1 + count, "{threshold}: {csv}");
    }
    let text = run(0, &["predict", &out, &photos, "--threshold", "1"]).succeeded().stdout;
    assert_eq!(text.matches("  no class above 100.00 %").count(), 40, "{text}");
    let top = run(0, &["predict", &out, &photos, "--threshold", "0", "--top", "2", "--csv"]).succeeded().stdout;
    assert_eq!(top.lines().count(), 81);
    assert_activation(&setting, &out, "sigmoid");
    assert_import_keeps_predictions(&setting, &out, &photos, &["--threshold", "0"]);
    assert_exports_are_imported(&setting, &out, &photos, &["--threshold", "0"]);
    let page = evaluation_file(&out);
    assert_eq!((page["several"]["images"].as_u64(), page["images"].as_array().unwrap().len()), (Some(40), 5));
    assert!(fs::read_to_string(format!("{out}/report.html")).unwrap().contains("average precision"));
}

#[test]
fn recipes_that_take_images_for_images_of_one_class_are_refused() {
    let small = SmallRun::of(|dir| Images::several(dir, DIGITS, 48, 10));
    small.refused_with(&[], &["loss.kind", "several labels", "\"cross_entropy\"", "kind = \"bce\"", "[loss]"]);
    small.refused_with(&["loss.kind=focal"], &["loss.kind", "\"focal\"", "sigmoid_focal"]);
    small.refused_with(&["loss.kind=bce", "loss.class_weights=auto"], &["loss.class_weights", "several labels"]);
    small.refused_with(&["loss.kind=bce", "balanced=true"], &["balanced", "several labels"]);
    small.refused_with(&["loss.kind=bce", "distill.teacher=runs/x"], &["distill.teacher", "several labels"]);
}

#[test]
fn single_and_multi_label_models_are_distinguished() {
    let (several, one) = (setting(), SmallRun::trained());
    let out = several.trained("out", 0, &["--max-steps", "1"]);
    let scored = |model: &str, data: &str, more: &[&str]| run(0, &[&["eval", model, "--data", data], more].concat());
    scored(&out, &one.data, &[]).failed(1, &[&out, "several labels", &one.data, "one label each", "convert csv"]);
    scored(&one.out, &several.data, &[]).failed(1, &["one label each", &several.data, "\"bce\""]);
    scored(&out, &several.data, &["--map-classes"]).failed(2, &["--map-classes", "one label", &several.data]);
    scored(&out, &several.data, &["--top", "5"]).failed(2, &["--top", "one label", &out, "several labels", "mAP"]);
    let picture = several.folder.at("picture.png");
    image::GrayImage::new(28, 28).save(&picture).unwrap();
    run(0, &["predict", &one.out, &picture, "--threshold", "0.3"]).failed(2, &["--threshold", "--top"]);
    run(0, &["predict", &out, &picture, "--threshold", "1.5"]).failed(2, &["--threshold", "from 0 to 1"]);
}

pub fn scores(out: &str) -> Vec<Value> {
    events_without_times(out, "eval")
}

/// Checks that the run has the same bits and scores on 1 to 4 ranks and after a stop. Returns its scores.
#[track_caller]
pub fn assert_equal_bits(setting: &Setting) -> Vec<Value> {
    let one = scores(&setting.assert_ranks_change_nothing(&[2, 3, 4], &[]));
    for ranks in ["2", "3", "4"] {
        assert_eq!(scores(&setting.out(ranks)), one, "{ranks} ranks");
    }
    setting.assert_stops_change_nothing("1", &[(3, "13")], 2, &[]);
    one
}

/// Checks for each list of keys that 18 steps on one rank and on three ranks have the same bits and scores.
#[track_caller]
pub fn assert_keys_combine(setting: &Setting, lists: &[&[&str]]) {
    for (number, keys) in lists.iter().enumerate() {
        let args = [&sets(keys)[..], &["--max-steps", "18"]].concat();
        let [one, three] = [1, 3].map(|ranks| {
            let name = format!("{number}-{ranks}");
            let out = setting.trained(&name, ranks, &args);
            (setting.digest(&name), setting.losses(&name), scores(&out))
        });
        assert_eq!(one, three, "{keys:?}");
    }
}

/// Extracts the images of the test split to `photos` and returns the lines of `trireme predict` for them.
pub fn predictions(setting: &Setting, out: &str, more: &[&str]) -> Vec<Value> {
    let photos = setting.folder.path().join("photos");
    fs::create_dir_all(&photos).unwrap();
    for id in 0..setting.images.manifest.splits["test"].count {
        data_tools::extract(&setting.images.dir, "test", id, &photos.join(format!("{id:02}.png"))).unwrap();
    }
    let photos = photos.display().to_string();
    run(0, &[&["predict", out, &photos, "--json"], more].concat()).succeeded().json_lines()
}

/// Checks that `found`, from `eval --best`, is the evaluation with the best score, and that this is not the last one.
#[track_caller]
pub fn assert_best(found: &Value, out: &str, by: &str, falls: bool) {
    let all = numbers(out, "eval", by);
    let better = |a: f64, b: f64| if falls { a < b } else { a > b };
    let best = (0..all.len()).reduce(|best, next| if better(all[next], all[best]) { next } else { best }).unwrap();
    assert!(best + 1 < all.len(), "the last epoch is the best by {by}, so nothing is tested: {all:?}");
    assert_eq!((found[by].as_f64(), found["epoch"].as_u64()), (Some(all[best]), Some(best as u64 + 1)), "{all:?}");
}

/// Checks that a copy of the model from `trireme import` has the same labels, bands and predictions. `images` is a file or a folder.
#[track_caller]
pub fn assert_import_keeps_predictions(setting: &Setting, out: &str, images: &str, more: &[&str]) {
    let copy = setting.folder.at("imported.h5");
    run(0, &["import", &format!("{out}/model.h5"), "-o", &copy]).succeeded();
    let (own, made) = (model(out), model_at(&copy));
    assert_eq!((made.label_kind(), &made.targets, &made.bands), (own.label_kind(), &own.targets, &own.bands));
    assert_eq!((made.image, &made.mean, &made.std), (own.image, &own.mean, &own.std));
    let predicted = |model: &str| run(0, &[&["predict", model, images, "--json"], more].concat()).succeeded().stdout;
    assert_eq!(predicted(&copy), predicted(out));
}

/// Returns the predictions for each image: the targets, or the probabilities of the classes in label order.
fn predicted_numbers(model: &str, images: &str, more: &[&str]) -> Vec<Vec<f64>> {
    let number = |value: &Value| value.as_f64().unwrap();
    let row = |line: &Value| match line["classes"].as_array() {
        Some(classes) => {
            let mut classes: Vec<&Value> = classes.iter().collect();
            classes.sort_by_key(|class| class["label"].as_u64());
            classes.into_iter().map(|class| number(&class["probability"])).collect()
        }
        None => line["targets"].as_object().unwrap().values().map(number).collect(),
    };
    run(0, &[&["predict", model, images, "--json"], more].concat()).succeeded().json_lines().iter().map(row).collect()
}

/// Checks that exports of this model can be imported without options, and that the imported models have the same labels,
/// transforms and statistics, and the same predictions up to rounding. `images` is a file or a folder.
#[track_caller]
pub fn assert_exports_are_imported(setting: &Setting, out: &str, images: &str, more: &[&str]) {
    let own = model(out);
    let expected = predicted_numbers(out, images, more);
    for (to, name) in [("safetensors", "labels.safetensors"), ("keras", "labels.h5"), ("onnx", "labels.onnx")] {
        let (file, copy) = (setting.folder.at(name), setting.folder.at("copy.h5"));
        run(0, &["export", out, "--to", to, "-o", &file]).succeeded();
        run(0, &["import", &file, "-o", &copy, "--force"]).succeeded();
        let made = model_at(&copy);
        assert_eq!((made.label_kind(), &made.classes, &made.targets), (own.label_kind(), &own.classes, &own.targets));
        assert_eq!((made.image, &made.preprocess, &made.bands), (own.image, &own.preprocess, &own.bands), "{name}");
        assert_eq!((&made.mean, &made.std), (&own.mean, &own.std), "{name}");
        let found = predicted_numbers(&copy, images, more);
        let near = |a: &f64, b: &f64| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
        let is_near = |(a, b): (&Vec<f64>, &Vec<f64>)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b));
        assert!(
            found.len() == expected.len() && found.iter().zip(&expected).all(is_near),
            "{name}: {found:?}, {expected:?}"
        );
    }
}

/// Checks that model.h5 and an export to Keras end with this activation and not with a softmax.
#[track_caller]
pub fn assert_activation(setting: &Setting, out: &str, activation: &str) {
    let exported = setting.folder.at("net.h5");
    run(0, &["export", out, "--to", "keras", "-o", &exported]).succeeded();
    for file in [&exported, &format!("{out}/model.h5")] {
        let bytes = fs::read(file).unwrap();
        let has = |word: &str| bytes.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(has(&format!("\"activation\":\"{activation}\"")) && !has("softmax"), "{file}");
    }
}
