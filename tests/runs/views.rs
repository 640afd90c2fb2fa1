//! Test-time augmentation. The scores of different views of an image are averaged, with the same result on any number
//! of ranks and in `predict`.

use serde_json::Value;
use support::images::{Images, THINGS};
use support::program::{ProgramOutput, events, run};
use support::setting::Setting;

/// A recipe for images of 32 pixels. The network gets crops of 28 pixels.
const RECIPE: &str = r#"
epochs = 1
batch = 8
workers = 2
schedule.base_lr = 0.003
augment.train = ["random_crop(28)", "normalize"]
augment.eval = ["center_crop(28)", "normalize"]
"#;

fn eval(out: &str, ranks: usize, more: &[&str]) -> (Value, ProgramOutput) {
    let ended = run(ranks, &[&["eval", out, "--json", "--threads", "1", "--batch", "4"], more].concat()).succeeded();
    (ended.json(), ended)
}

#[test]
fn averages_of_views_are_the_same_on_any_number_of_ranks() {
    let setting = Setting::with(RECIPE, |dir| Images::new(dir, THINGS, 48, 21));
    let out = setting.trained("out", 0, &[]);
    let plain = eval(&out, 0, &[]).0;
    for views in [&["--flip"][..], &["--corners"], &["--flip", "--corners"], &["--shift", "2"]] {
        let (alone, _) = eval(&out, 0, views);
        assert_eq!(alone["count"], 21);
        assert_ne!(alone["loss"], plain["loss"], "{views:?}");
        for ranks in [2, 3] {
            assert_eq!(eval(&out, ranks, views).0["loss"], alone["loss"], "{views:?} on {ranks} ranks");
        }
    }
    // a run that evaluates with these views logs the same scores
    let flips = setting.trained("flips", 2, &["--set", "eval.flip=true", "--set", "eval.corners=true"]);
    let logged = events(&flips, "eval").pop().unwrap();
    let (ten, _) = eval(&flips, 0, &["--flip", "--corners"]);
    for field in ["top1", "top5", "loss", "count"] {
        assert_eq!(logged[field], ten[field], "{field}");
    }
    let without =
        Setting::with(&RECIPE.replace("\"center_crop(28)\", ", "").replace("random_crop(28)", "pad_crop(2)"), |dir| {
            Images::new(dir, THINGS, 16, 8)
        });
    let out = without.trained("out", 0, &[]);
    run(0, &["eval", &out, "--corners"]).failed(2, &["center_crop(size)", "has no center_crop"]);
}

/// The scores before softmax are averaged, so a picture and its mirror image have the same result.
#[test]
fn a_picture_and_its_mirror_image_get_the_same_scores() {
    let setting = Setting::with(RECIPE, |dir| Images::new(dir, THINGS, 48, 8));
    let out = setting.trained("out", 0, &[]);
    let picture =
        image::RgbImage::from_fn(32, 32, |x, y| image::Rgb([(7 * x) as u8, (5 * y) as u8, (x * y / 4) as u8]));
    let (one, other) = (setting.folder.at("one.png"), setting.folder.at("other.png"));
    picture.save(&one).unwrap();
    image::imageops::flip_horizontal(&picture).save(&other).unwrap();
    let name = |file: &str, more: &[&str]| {
        let found = run(0, &[&["predict", &out, file, "--json"], more].concat()).succeeded().json();
        let p = |class: &Value| (class["label"].as_u64().unwrap(), class["probability"].as_f64().unwrap());
        found["classes"].as_array().unwrap().iter().map(p).collect::<Vec<_>>()
    };
    let near =
        |a: &[(u64, f64)], b: &[(u64, f64)]| a.iter().zip(b).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-5);
    assert!(!near(&name(&one, &[]), &name(&other, &[])));
    for views in [&["--flip"][..], &["--flip", "--corners"]] {
        assert!(near(&name(&one, views), &name(&other, views)), "{views:?}");
    }
}
