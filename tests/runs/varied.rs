//! A data set with images of different sizes, with the real binary. Training, evaluation and prediction use the same
//! transforms from the file to the input.

use loaders::ImageSpec;

use support::images::{self, DIGITS, Images, THINGS};
use support::in_repository;
use support::program::run;
use support::setting::Setting;
use support::weights::model;

const RECIPE: &str = r#"
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
    let setting = Setting::with(RECIPE, |dir| Images::edited(dir, THINGS, 48, 20, sized));
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

    // If a list of transforms needs a fixed size, the error names an image with another size. An error in the list
    // itself does not.
    let fixed = "augment.train=[\"random_crop(32)\", \"normalize\"]";
    setting
        .train("other", 0, &["--set", fixed])
        .failed(2, &["augment.train", "various sizes", "random_resized_crop(size)", "record 1 "]);
    let wrong = "augment.train=[\"random_resized_crop(0)\", \"normalize\"]";
    let ended = setting.train("other", 0, &["--set", wrong]);
    assert!(!ended.stderr.contains("record 1 "), "{}", ended.stderr);
    ended.failed(2, &["augment.train", "random_resized_crop(0)"]);
}

/// A model for grey images of any size converts a picture with colours to grey.
#[test]
fn a_grey_model_reads_pictures_with_colours() {
    let sized = |id: u64, record: &mut images::Record| {
        *record = images::record(1, id, ImageSpec::new(33 + id as u32 % 40, 60, 1));
    };
    let setting = Setting::with(RECIPE, |dir| Images::edited(dir, DIGITS, 16, 8, sized));
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    assert_eq!(model(&out).image, [1, 0, 0]);
    let colour = in_repository("loaders/tests/golden/pictures/rgb.png").display().to_string();
    let grey = setting.folder.at("grey.png");
    image::open(&colour).unwrap().to_luma8().save(&grey).unwrap();
    let lines = run(0, &["predict", &out, &colour, &grey, "--json"]).succeeded().json_lines();
    assert_eq!(lines[0]["classes"], lines[1]["classes"]);
}
