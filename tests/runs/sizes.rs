//! Images of different sizes with the real binary. Images that grow at given epochs give the same results on any number of
//! ranks and after a stop at any step, and invalid settings are refused. A data set with images of different sizes goes
//! through the same transforms in training, evaluation and prediction.

use std::path::Path;

use loaders::ImageSpec;

use crate::evaluation::evaluation_file;
use support::images::{self, DIGITS, Images, THINGS};
use support::program::{events, run, sets};
use support::setting::Setting;
use support::weights::model;
use support::{in_repository, mentions};

/// A recipe with five steps per epoch, and images of 8, 12 and then 16 pixels.
const RECIPE: &str = r#"
model = "resnet20"
epochs = 4
seed = 9
batch = 8
workers = 4
optimizer.momentum = 0.9
schedule.base_lr = 0.01
augment.train = ["random_resized_crop(16, 0.35)", "flip", "normalize"]
augment.eval = ["resize(18)", "center_crop(16)", "normalize"]
augment.sizes = [[0, 8], [1, 12], [3, 16]]
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, ImageSpec::new(20, 20, 3), [40, 12])
}

#[test]
fn growing_images_are_the_same_on_any_ranks_and_after_any_stop() {
    let setting = setting();
    let whole = setting.assert_ranks_change_nothing(&[2, 3, 4], &[]);
    // stops within a size, at the end of a size, and within the last size
    for stop in ["3", "5", "8", "15", "17"] {
        let out = format!("stop-{stop}");
        setting.trained(&out, 2, &["--max-steps", stop]);
        setting.resumed(&out, 3, &[]);
        assert!(setting.model(&out) == setting.model("1"), "model.h5 differs after a stop at step {stop}");
    }
    let sizes = events(&whole, "start")[0]["facts"]["sizes"].as_str().unwrap().to_string();
    mentions(&sizes, &["8x8x3 from epoch 0", "12x12x3 from epoch 1", "16x16x3 from epoch 3"]);
    assert_eq!(sizes.matches("epoch").count(), 3, "{sizes}");
    // evaluation uses a single size, which is stored in the model
    assert_scored_alike(&whole);
}

/// Checks that the model has an input of 16x16 pixels, and that `eval` prints the run's last loss.
#[track_caller]
fn assert_scored_alike(out: &str) {
    assert_eq!(model(out).input, [3, 16, 16]);
    let score = run(2, &["eval", out, "--json", "--threads", "1", "--batch", "2"]).succeeded().json();
    assert_eq!(score["loss"], events(out, "eval").pop().unwrap()["loss"]);
}

#[test]
fn images_match_a_run_of_that_size() {
    let setting = setting();
    let steps = ["--max-steps", "3"];
    let grows = setting.trained("grows", 0, &steps);
    let lists = [
        "augment.train=[\"random_resized_crop(8, 0.35)\", \"flip\", \"normalize\"]",
        "augment.eval=[\"resize(9)\", \"center_crop(8)\", \"normalize\"]",
    ];
    setting.trained("small", 0, &[&sets(&lists)[..], &["--unset", "augment.sizes"], &steps].concat());
    // except for rounding: a network planned for larger images may compute in another way
    let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5 * b;
    assert!(setting.losses("grows").into_iter().zip(setting.losses("small")).all(near));
    let large = setting.trained("large", 0, &[&["--unset", "augment.sizes"][..], &steps].concat());
    assert_ne!(setting.losses("grows"), setting.losses("large"));
    assert!(Path::new(&grows).exists() && Path::new(&large).exists());
    // the report shows the training images in the first size
    let augmented = |out: &str| evaluation_file(&setting.out(out))["augmented"].to_string();
    let [grows, small, large] = ["grows", "small", "large"].map(augmented);
    assert!(grows.contains("base64") && grows == small && grows != large, "{grows}");
}

/// Combines growing images with SAM, a teacher, mixing, averages and the search for a rate.
#[test]
fn growing_images_combine_with_other_keys() {
    let setting = setting();
    let teacher = setting.trained("teacher", 0, &["--max-steps", "2", "--unset", "augment.sizes"]);
    let taught = format!("distill.teacher={teacher}");
    let keys = sets(&[&taught, "optimizer.sam_rho=0.05", "mix.cutmix=1", "ema.swa_start=2", "steps=17"]);
    setting.trained("1", 1, &keys);
    setting.trained("3", 3, &keys);
    assert!(setting.model("3") == setting.model("1"), "model.h5 differs on 3 ranks");
    let found = setting.train("rate", 2, &["--find-lr=40"]).succeeded();
    assert!(found.stdout.contains("schedule.base_lr = "), "{}", found.stdout);
}

#[test]
fn invalid_sizes_are_refused() {
    let setting = setting();
    let refused = |keys: &[&str], parts: &[&str]| {
        setting.train("out", 2, &sets(keys)).failed(2, parts);
    };
    refused(&["augment.sizes=[[1, 8]]"], &["augment.sizes", "epoch 0", "got 1"]);
    refused(&["augment.sizes=[]"], &["augment.sizes", "[[0, 128], [6, 160]]"]);
    refused(&["augment.sizes=[[0, 8], [0, 12]]"], &["augment.sizes", "epochs must ascend"]);
    refused(&["augment.sizes=[[0, 8], [4, 16]]"], &["augment.sizes", "before epoch 4"]);
    refused(&["augment.sizes=[[0, 0]]"], &["augment.sizes", "1 pixel", "got 0"]);
    refused(&["augment.sizes=[[0, \"8\"]]"], &["augment.sizes", "pairs of integers"]);
    refused(&["augment.sizes=[[0, 24]]"], &["augment.sizes", "24 pixels", "at most 16"]);
    refused(&["loader.cache=device"], &["loader.cache", "augment.sizes"]);
    refused(
        &["augment.train=[\"flip\"]", "augment.eval=[\"flip\"]"],
        &["augment.sizes", "no transform", "resize(size)"],
    );
    let flat = ["model=cifarnet", "augment.sizes=[[0, 12], [1, 16]]"];
    setting.train("out", 2, &sets(&flat)).failed(2, &["augment.sizes", "only images of 3x16x16", "global pool"]);
}

/// Without `augment.sizes`, a run may train and evaluate at different image sizes, and either may be larger. The result
/// is the same as with only this training size in `augment.sizes`. The model stores the size of the evaluation.
#[test]
fn a_run_may_be_trained_at_one_size_and_scored_at_another() {
    let setting = setting();
    let grows = setting.trained("grows", 1, &sets(&["augment.sizes=[[0, 8]]", "epochs=2"]));
    let small = "augment.train=[\"random_resized_crop(8, 0.35)\", \"flip\", \"normalize\"]";
    let keys = [&sets(&[small, "epochs=2"])[..], &["--unset", "augment.sizes"]].concat();
    for ranks in [1, 2] {
        let name = format!("two-{ranks}");
        let out = setting.trained(&name, ranks, &keys);
        assert_eq!(setting.losses(&name), setting.losses("grows"));
        assert_eq!(events(&out, "eval").pop().unwrap()["loss"], events(&grows, "eval").pop().unwrap()["loss"]);
        assert_scored_alike(&out);
    }
    let eval = "augment.eval=[\"resize(9)\", \"center_crop(8)\", \"normalize\"]";
    let teacher = setting.trained("teacher", 0, &[&keys[..], &["--set", eval, "--max-steps", "2"]].concat());
    let teacher = format!("distill.teacher={teacher}");
    setting.trained("taught", 2, &[&keys[..], &["--set", &teacher, "--max-steps", "7"]].concat());
    // this run evaluates at a smaller size than it trains
    let keys = [&sets(&[eval, "epochs=1"])[..], &["--unset", "augment.sizes"]].concat();
    let out = setting.trained("down", 2, &keys);
    assert_eq!(model(&out).input, [3, 8, 8]);
    let flat = [&sets(&[small, "model=cifarnet"])[..], &["--unset", "augment.sizes"]].concat();
    let parts = ["augment.train", "8x8x3", "augment.eval", "16x16x3", "global pool"];
    setting.train("flat", 2, &flat).failed(2, &parts);
}

const VARIED: &str = r#"
model = "resnet20"
epochs = 1
batch = 8
workers = 2
reduce.codec = "float"
schedule.base_lr = 0.01
augment.train = ["random_resized_crop(32)", "flip", "normalize"]
augment.eval = ["resize(36)", "center_crop(32)", "normalize"]
"#;

#[test]
fn training_scoring_and_predicting() {
    let sized = |id: u64, record: &mut images::Record| {
        let (height, width) = (33 + id as u32 % 40, 80 - id as u32 % 29);
        *record = images::record(1, id, ImageSpec::new(height, width, 3));
    };
    let setting = Setting::with(VARIED, |dir| Images::edited(dir, THINGS, 48, 20, sized));
    let data = &setting.data;
    let out = setting.trained("out", 2, &[]);
    let losses = setting.losses("out");
    assert!(losses.len() == 6 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");

    let path = format!("{out}/model.h5");
    let model = model(&out);
    assert_eq!((model.image, model.input), ([3, 0, 0], [3, 32, 32]));
    assert_eq!(model.preprocess[..2], ["resize(36)", "center_crop(32)"]);

    // One rank and two ranks compute the score that is stored in the model.
    let score = |ranks| {
        let args = ["eval", &path, "--data", data, "--split", "test", "--batch", "8", "--json"];
        let line = run(ranks, &args).succeeded().json();
        (line["top1"].as_f64().unwrap(), line["count"].as_u64().unwrap())
    };
    assert_eq!(score(0), score(2));
    assert_eq!(score(0), (model.scores["test/top1"], 20));

    // Files of any size go through the same transforms and are not resized first.
    let pictures = in_repository("loaders/tests/golden/pictures");
    let picture = |name: &str| pictures.join(name).display().to_string();
    let args = ["420.jpg", "rgb.png", "grey.jpg", "cmyk.jpg"].map(picture);
    let mut predict = vec!["predict", path.as_str(), "--json"];
    predict.extend(args.iter().map(String::as_str));
    let lines = run(0, &predict).succeeded().json_lines();
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(line["classes"].as_array().unwrap().len(), 5);
        assert!(line["resized_from"].is_null(), "{line}");
    }

    // Grey images are converted to colour.
    let (grey, table) = (setting.folder.path().join("grey"), setting.folder.at("grey.csv"));
    Images::new(&grey, DIGITS, 8, 9);
    let grey = grey.display().to_string();
    run(0, &["eval", &path, "--data", &grey, "--threads", "1"]).succeeded();
    run(0, &["predict", &path, &grey, "--out", &table, "--threads", "1"]).succeeded();
    assert_eq!(std::fs::read_to_string(table).unwrap().lines().count(), 10);

    // If a list of transforms needs a fixed size, the error names an image with another size. An error in the list itself does not.
    let fixed = "augment.train=[\"random_crop(32)\", \"normalize\"]";
    setting
        .train("other", 0, &["--set", fixed])
        .failed(2, &["augment.train", "various sizes", "random_resized_crop(size)", "record 1 "]);
    let wrong = "augment.train=[\"random_resized_crop(0)\", \"normalize\"]";
    let ended = setting.train("other", 0, &["--set", wrong]);
    assert!(!ended.stderr.contains("record 1 "), "{}", ended.stderr);
    ended.failed(2, &["augment.train", "random_resized_crop(0)"]);
}

#[test]
fn a_grey_model_reads_pictures_with_colours() {
    let sized = |id: u64, record: &mut images::Record| {
        *record = images::record(1, id, ImageSpec::new(33 + id as u32 % 40, 60, 1));
    };
    let setting = Setting::with(VARIED, |dir| Images::edited(dir, DIGITS, 16, 8, sized));
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    assert_eq!(model(&out).image, [1, 0, 0]);
    let colour = in_repository("loaders/tests/golden/pictures/rgb.png").display().to_string();
    let grey = setting.folder.at("grey.png");
    image::open(&colour).unwrap().to_luma8().save(&grey).unwrap();
    let lines = run(0, &["predict", &out, &colour, &grey, "--json"]).succeeded().json_lines();
    assert_eq!(lines[0]["classes"], lines[1]["classes"]);
}
