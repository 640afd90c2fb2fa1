//! Runs with numbers as labels, with the real binary. Results are bit-identical on any number of ranks and after a stop. Scores follow
//! their definitions in the targets' units. Also tests predictions, exports, and settings that are refused.

use std::fs;

use loaders::ImageSpec;
use serde_json::Value;

use support::blobs::{self, TARGETS};
use support::images::{DIGITS, Images};
use support::mentions;
use support::program::{events, run, sets};
use support::setting::Setting;
use support::small_run::SmallRun;
use support::weights;

use crate::evaluation::evaluation_file;
use crate::multi_label::{
    assert_activation, assert_best, assert_equal_bits, assert_exports_are_imported, assert_import_keeps_predictions,
    assert_keys_combine, predictions, scores,
};

/// A recipe with nine steps per epoch. In the short last step, each worker has at most one image.
const RECIPE: &str = r#"
epochs = 6
seed = 5
batch = 12
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.004
loss.kind = "mse"
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::with(RECIPE, |dir| blobs::images(dir, DIGITS, [98, 40]))
}

/// Evaluates a model in batches of 3 images, as a run with this recipe does, so that the results have the same bits.
fn eval(model: &str, ranks: usize, more: &[&str]) -> Value {
    run(ranks, &[&["eval", model, "--threads", "1", "--batch", "3", "--json"], more].concat()).succeeded().json()
}

#[test]
fn equal_bits_on_any_number_of_ranks_and_after_a_stop() {
    let setting = setting();
    let (scores, one) = (assert_equal_bits(&setting), setting.out("1"));
    setting.assert_learns("1", 9, 9, 0.7);
    let last = &scores[scores.len() - 1];
    assert!(last["r2"].as_f64() > scores[0]["r2"].as_f64(), "{scores:?}");
    // a number is never right, so there is no accuracy
    assert!(last["top1"].is_null() && last["top5"].is_null() && last["count"] == 40, "{last}");
    assert!(events(&one, "step")[0]["top1"].is_null() && events(&one, "epoch")[0]["top1"].is_null());
    let start = events(&one, "start")[0]["facts"].to_string();
    mentions(&start, &["mean squared error", "standardised"]);
}

/// Results do not depend on the number of ranks with other losses, mixed images, averages and views either.
#[test]
fn other_settings_combine_with_numbers() {
    let setting = setting();
    let ways: [&[&str]; 3] = [
        &["loss.kind=huber", "loss.delta=0.5", "mix.mixup=0.5", "mix.cutmix=1.0"],
        &["loss.kind=l1", "ema.decay=0.9", "eval.flip=true", "checkpoint.best_by=ema.rmse"],
        &["model=lenet", "schedule.kind=plateau", "schedule.score=mae", "stop.score=r2", "stop.target=0.99"],
    ];
    assert_keys_combine(&setting, &ways);
}

/// Extracts the images in the test split and returns the numbers that `trireme predict` prints for them.
fn predicted(setting: &Setting, out: &str) -> Vec<[f64; 3]> {
    rows(&predictions(setting, out, &[]))
}

/// Returns the numbers in the lines of `trireme predict`.
fn rows(lines: &[Value]) -> Vec<[f64; 3]> {
    lines.iter().map(|line| TARGETS.map(|name| line["targets"][name].as_f64().unwrap())).collect()
}

#[test]
fn scores_are_what_the_definitions_say() {
    let setting = setting();
    let out = setting.trained("out", 2, &[]);
    let found = eval(&out, 0, &[]);
    for ranks in [2, 3, 4] {
        assert_eq!(eval(&out, ranks, &[]), found, "{ranks} ranks");
    }
    let predicted = predicted(&setting, &out);
    let truth: Vec<[f64; 3]> = (0..40).map(|id| blobs::numbers(2, id).map(f64::from)).collect();
    let near = |got: &Value, want: f64, what: &str| {
        let got = got.as_f64().unwrap();
        assert!((got - want).abs() < 1e-5 * want.abs().max(1e-3), "{what}: expected {want}, got {got}");
    };
    let (mut loss, mut means) = (0.0, [0.0; 3]);
    for (at, name) in TARGETS.into_iter().enumerate() {
        let (own, p): (Vec<f64>, Vec<f64>) = truth.iter().zip(&predicted).map(|(own, p)| (own[at], p[at])).unzip();
        let errors: Vec<f64> = own.iter().zip(&p).map(|(own, p)| p - own).collect();
        let mean = own.iter().sum::<f64>() / 40.0;
        let squares: f64 = errors.iter().map(|e| e * e).sum();
        let each = [
            (squares / 40.0).sqrt(),
            errors.iter().map(|e| e.abs()).sum::<f64>() / 40.0,
            1.0 - squares / own.iter().map(|own| (own - mean).powi(2)).sum::<f64>(),
        ];
        let row = &found["targets"][at];
        assert_eq!(row["name"], name);
        for ((key, want), sum) in ["rmse", "mae", "r2"].into_iter().zip(each).zip(&mut means) {
            near(&row[key], want, &format!("{key} of {name}"));
            *sum += want / 3.0;
        }
        loss += squares / setting.images.manifest.targets[at].std.powi(2) / 120.0;
    }
    for (key, want) in ["rmse", "mae", "r2"].into_iter().zip(means) {
        near(&found[key], want, key);
        near(&scores(&out).last().unwrap()[key], want, key);
    }
    near(&found["loss"], loss, "loss");
    // model.h5 has the scores, and the names and the scale of the targets
    let model = weights::model(&out);
    assert_eq!(model.targets, setting.images.manifest.targets);
    near(&found["rmse"], model.scores["test/rmse"], "model.h5");
    assert!(model.scores.keys().all(|name| !name.contains("top")), "{:?}", model.scores);
}

#[test]
fn the_best_by_any_score_is_kept() {
    let setting = setting();
    for (by, falls) in [("rmse", true), ("mae", true), ("r2", false)] {
        let best_by = format!("checkpoint.best_by={by}");
        // after two epochs the weights no longer change, so no later score is better
        let step = ["schedule.kind=step", "schedule.milestones=[2]", "schedule.gamma=1e-20", "epochs=4"];
        let keys = [&[best_by.as_str(), "checkpoint.keep=1"], &step[..]].concat();
        let out = setting.trained(by, 2, &sets(&keys));
        assert_best(&eval(&out, 0, &["--best"]), &out, by, falls);
    }
}

#[test]
fn tables_sheets_and_exports() {
    let setting = setting();
    let out = setting.trained("out", 0, &["--max-steps", "9"]);
    let [csv, sheet] = ["each.csv", "errors.png"].map(|name| setting.folder.at(name));
    let text = run(0, &["eval", &out, "--csv", &csv, "--errors", &sheet]).succeeded().stdout;
    mentions(&text, &["RMSE ", "MAE ", "R2 ", "radius", "40 images"]);
    run(0, &["eval", &out, "--top", "5"]).failed(2, &["--top", "predicts numbers", "RMSE"]);
    assert!(!text.contains("top-1"), "{text}");
    let table = fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "image,shard,record,x,predicted x,y,predicted y,radius,predicted radius,loss,file");
    let predicted = predicted(&setting, &out);
    for (id, (line, predicted)) in lines[1..].iter().zip(&predicted).enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let own = blobs::numbers(2, id as u64);
        for at in 0..3 {
            let found: f64 = fields[4 + 2 * at].parse().unwrap();
            assert_eq!(fields[3 + 2 * at], own[at].to_string(), "{line}");
            assert!((found - predicted[at]).abs() <= 1e-5 * found.abs(), "{line} {predicted:?}");
        }
    }
    assert_eq!(lines.len(), 41);
    assert!(image::open(&sheet).unwrap().width() > 100);
    let photos = setting.folder.at("photos");
    let csv = run(0, &["predict", &out, &photos, "--csv"]).succeeded().stdout;
    assert!(csv.lines().count() == 41 && csv.starts_with("image,x,y,radius\n"), "{csv}");
    run(0, &["predict", &out, &photos, "--top", "2"]).failed(2, &["--top", "numbers"]);
    run(0, &["predict", &out, &photos, "--threshold", "0.5"]).failed(2, &["--threshold", "numbers"]);
    // exported networks predict in the targets' units
    assert_activation(&setting, &out, "linear");
    assert_import_keeps_predictions(&setting, &out, &photos, &[]);
    assert_exports_are_imported(&setting, &out, &photos, &[]);
    // a run can start from an export, but not with its last layer
    let from = format!("init.from={}", setting.folder.at("labels.safetensors"));
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.25, 0.2)\"]"));
    let starts = [&sets(&[&from, &lists[0], &lists[1]])[..], &["--max-steps", "1"]].concat();
    setting.train("from", 0, &starts).failed(2, &["init.from", "labels.safetensors", "units of the targets", "fc2"]);
    let without = "init.exclude=[\"fc2.*\"]";
    setting.trained("without", 0, &[&starts[..], &["--set", without]].concat());
    let page = evaluation_file(&out);
    let plots = page["numbers"].as_array().unwrap();
    assert_eq!((plots.len(), page["images"][0].as_u64()), (3, Some(40)));
    for plot in plots {
        assert_eq!(plot["points"].as_array().unwrap().len(), 40);
        assert_eq!(plot["residuals"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 40);
    }
    assert!(fs::read_to_string(format!("{out}/report.html")).unwrap().contains("predicted minus number"));
    mentions(&run(0, &["runs", setting.folder.path().to_str().unwrap()]).succeeded().stdout, &["R2 "]);
}

/// The last layer of an export has the scale and the mean of the targets. It keeps 32 bits with `--half`, because 16 bits
/// would round a mean of 2015.3 to 2015. The deviation makes the standardised numbers small.
#[test]
fn the_scale_is_in_the_last_layer_of_an_export() {
    let setting = setting();
    let years = setting.described("years", |manifest| {
        (manifest.targets[0].mean, manifest.targets[0].std) = (2015.3, 10_000.0);
    });
    let out = setting.trained("out", 0, &["--data", &years, "--max-steps", "9"]);
    let model = weights::model(&out);
    let last = model.layers.iter().find(|layer| layer.tensors.iter().any(|tensor| tensor.1 == [3])).unwrap();
    let plain: &[&str] = &[];
    for (name, half) in [("net", plain), ("half", &["--half"][..])] {
        let file = setting.folder.at(&format!("{name}.safetensors"));
        run(0, &[&["export", &out, "--to", "safetensors", "-o", &file], half].concat()).succeeded();
        let bytes = fs::read(&file).unwrap();
        let (head, start) = weights::header(&bytes);
        for (field, shape, values) in &last.tensors {
            let entry = &head[format!("{}.{field}", last.name)];
            assert_eq!(entry["dtype"], "F32", "{name} {field}");
            let [from, to] = [0, 1].map(|at| start + entry["data_offsets"][at].as_u64().unwrap() as usize);
            let exported = weights::floats(&bytes[from..to]);
            for (at, (value, exported)) in values.iter().zip(&exported).enumerate() {
                let target = &model.targets[at / shape.get(1).copied().unwrap_or(1)];
                let offset = if field == "bias" { target.mean } else { 0.0 };
                assert_eq!(*exported, (f64::from(*value) * target.std + offset) as f32, "{field} {at}");
            }
        }
    }
}

/// An export keeps the names and the scale of the targets, so the imported model predicts the same numbers.
#[test]
fn an_exported_graph_predicts_in_the_targets_units() {
    let setting = setting();
    let out = setting.trained("out", 0, &["--max-steps", "9"]);
    let [graph, copy] = ["net.onnx", "copy.h5"].map(|name| setting.folder.at(name));
    run(0, &["export", &out, "--to", "onnx", "-o", &graph]).succeeded();
    run(0, &["import", &graph, "-o", &copy]).succeeded();
    assert_eq!(weights::model_at(&copy).targets, weights::model(&out).targets);
    let predicted = predicted(&setting, &out);
    let lines = run(0, &["predict", &copy, &setting.folder.at("photos"), "--json"]).succeeded().json_lines();
    let found = rows(&lines);
    assert_eq!((found.len(), predicted.len()), (40, 40));
    for (found, predicted) in found.iter().zip(&predicted) {
        for (target, (found, wanted)) in setting.images.manifest.targets.iter().zip(found.iter().zip(predicted)) {
            assert!((found - wanted).abs() < 1e-4 * target.std, "{}: {found}, expected {wanted}", target.name);
        }
    }
    // a run with this graph starts with a random last layer, because the one in the file does not predict standardised numbers
    let model = format!("model={graph}");
    let args = [&sets(&[&model])[..], &["--max-steps", "1"]].concat();
    setting.train("graph", 0, &args).succeeded().says(&["net.onnx", "fc2", "random weights", "units"]);
}

#[test]
fn recipes_that_do_not_fit_the_labels_are_refused() {
    let small = SmallRun::of(|dir| blobs::images(dir, DIGITS, [48, 10]));
    small.refused_with(&[], &["loss.kind", "numbers", "\"cross_entropy\"", "kind = \"mse\"", "[loss]"]);
    small.refused_with(&["loss.kind=bce"], &["loss.kind", "numbers", "\"bce\"", "huber"]);
    small.refused_with(&["loss.kind=mse", "label_smoothing=0.1"], &["label_smoothing", "numbers"]);
    small.refused_with(&["loss.kind=mse", "balanced=true"], &["balanced", "numbers"]);
    small.refused_with(&["loss.kind=mse", "distill.teacher=runs/x"], &["distill.teacher", "numbers"]);
    small.refused_with(&["loss.kind=mse", "checkpoint.best_by=top1"], &["checkpoint.best_by", "\"top1\"", "\"rmse\""]);
    small.refused_with(&["loss.kind=mse", "stop.patience=2"], &["stop.score", "\"top1\"", "\"r2\""]);
    let classes = SmallRun::new();
    classes.refused_with(&["loss.kind=mse"], &["loss.kind", "classes", "\"mse\"", "--targets"]);
    classes.refused_with(&["checkpoint.best_by=r2"], &["checkpoint.best_by", "\"r2\"", "\"top1\""]);
}

#[test]
fn models_of_numbers_and_of_classes_are_distinguished() {
    let (numbers, one) = (setting(), SmallRun::trained());
    let out = numbers.trained("out", 0, &["--max-steps", "1"]);
    let scored = |model: &str, data: &str, more: &[&str]| run(0, &[&["eval", model, "--data", data], more].concat());
    scored(&out, &one.data, &[]).failed(1, &[&out, "x, y, radius", &one.data, "classes", "--targets"]);
    scored(&one.out, &numbers.data, &[]).failed(1, &["classes", &numbers.data, "\"mse\""]);
    scored(&out, &numbers.data, &["--map-classes"]).failed(2, &["--map-classes", &numbers.data]);
    let renamed = numbers.described("renamed", |manifest| manifest.targets[1].name = "height".into());
    let ended = scored(&out, &renamed, &[]).failed(1, &["targets", "\"y\"", "\"height\""]);
    assert!(!ended.stderr.contains("--map-classes"), "{}", ended.stderr);
    // another scale in the data set changes nothing: the model's own applies
    let scaled = numbers.described("scaled", |manifest| manifest.targets[0].std = 7.0);
    assert_eq!(eval(&out, 0, &["--data", &scaled])["targets"], eval(&out, 0, &[])["targets"]);
}

/// Trains a network to predict a number (the brightness) from colour images. The data set was converted from a CSV table.
#[test]
fn a_table_becomes_a_scored_model() {
    let setting = Setting::with(RECIPE, |dir| Images::new(dir, ImageSpec::new(32, 32, 3), 4, 4));
    let photos = setting.folder.path().join("photos");
    fs::create_dir_all(&photos).unwrap();
    let mut table = "file,split,brightness\n".to_string();
    for id in 0..60u32 {
        let bright = (id * 37 % 60 * 4) as u8;
        let picture = image::RgbImage::from_fn(32, 32, |x, y| image::Rgb([bright, (x * 3) as u8, (y * 5) as u8]));
        picture.save(photos.join(format!("{id}.png"))).unwrap();
        let split = if id < 48 { "train" } else { "test" };
        table += &format!("{id}.png,{split},{}\n", f32::from(bright) * 10.0);
    }
    fs::write(photos.join("table.csv"), table).unwrap();
    let [data, table] = [setting.folder.at("set"), photos.join("table.csv").display().to_string()];
    run(0, &["data", "convert", "csv", &table, &data, "--targets", "brightness"]).succeeded();
    let keys = sets(&["model=cifarnet", "schedule.base_lr=0.01", "epochs=12"]);
    let out = setting.trained("out", 2, &[&keys[..], &["--data", &data]].concat());
    let found = eval(&out, 0, &["--data", &data]);
    assert!(found["r2"].as_f64().unwrap() > 0.9, "{found}");
    let dark = photos.join("0.png").display().to_string();
    let text = run(0, &["predict", &out, &dark]).succeeded().stdout;
    assert!(text.contains("  brightness  "), "{text}");
}
