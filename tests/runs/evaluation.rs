//! Tests what an evaluation reports in addition to its score. The report is the same on any number of ranks and
//! consistent with the table of images that `eval --csv` writes. Also tests the evaluation.json of a run, and averages over
//! views of an image.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::log::{data_of, page_of};
use support::images::{DIGITS, Images, THINGS};
use support::program::{PATIENCE, ProgramOutput, events, logged, run, sets, signal, start, trireme};
use support::setting::Setting;
use support::small_run::{RECIPE, SmallRun};

/// Evaluates with the batch size per worker that the recipe's runs use, because sums over other batches may round
/// differently.
fn eval(model: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
    run(ranks, &[&["eval", model, "--threads", "1", "--batch", "4"], more].concat()).succeeded()
}

/// A line of the table that `eval --csv` writes, with the results for one image.
struct Row {
    label: usize,
    predicted: usize,
    probability: f64,
    place: usize,
    loss: f64,
}

fn rows(path: &str) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("image,shard,record,label,class,predicted,predicted_class,probability,place,loss,file")
    );
    let row = |(number, line): (usize, &str)| {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields[0].parse(), fields[4]), (Ok(number), format!("wave {}", fields[3]).as_str()), "{line}");
        Row {
            label: fields[3].parse().unwrap(),
            predicted: fields[5].parse().unwrap(),
            probability: fields[7].parse().unwrap(),
            place: fields[8].parse().unwrap(),
            loss: fields[9].parse().unwrap(),
        }
    };
    lines.enumerate().map(row).collect()
}

fn near(found: &Value, expected: f64) -> bool {
    (found.as_f64().unwrap() - expected).abs() < 1e-9
}

/// Computes every score again from the table and compares it.
fn assert_consistent(found: &Value, rows: &[Row]) {
    let count = rows.len() as f64;
    let share = |among: &dyn Fn(&&Row) -> bool| rows.iter().filter(|row| among(row)).count() as f64 / count;
    assert!(near(&found["top1"], share(&|row| row.label == row.predicted)));
    for k in 1..=5 {
        assert!(near(&found["top_k"][k - 1], share(&|row| row.place <= k)), "top {k}");
    }
    assert!(near(&found["top5"], share(&|row| row.place <= 5)));
    assert!((found["loss"].as_f64().unwrap() - rows.iter().map(|row| row.loss).sum::<f64>() / count).abs() < 1e-5);
    let mut f1 = Vec::new();
    for class in 0..10 {
        let of = |among: &dyn Fn(&&Row) -> bool| rows.iter().filter(|row| among(row)).count() as f64;
        let (images, predicted) = (of(&|row| row.label == class), of(&|row| row.predicted == class));
        let right = of(&|row| row.label == class && row.predicted == class);
        let own = &found["per_class"][class];
        assert_eq!((&own["class"], &own["images"]), (&format!("wave {class}").into(), &(images as u64).into()));
        assert!(predicted == 0.0 || near(&own["precision"], right / predicted), "{own}");
        assert!(images == 0.0 || near(&own["recall"], right / images), "{own}");
        if images + predicted > 0.0 {
            f1.push(2.0 * right / (images + predicted));
        }
        for other in 0..10 {
            let cell = of(&|row| row.label == class && row.predicted == other);
            assert_eq!(found["confusion"][class][other], cell as u64);
        }
    }
    assert!(near(&found["macro_f1"], f1.iter().sum::<f64>() / f1.len() as f64));
    let mut bins: BTreeMap<i64, f64> = BTreeMap::new();
    for row in rows {
        let right = f64::from(u8::from(row.label == row.predicted));
        *bins.entry((row.probability * 15.0).ceil() as i64).or_default() += row.probability - right;
    }
    let ece = bins.values().map(|sum| sum.abs()).sum::<f64>() / count;
    assert!((found["ece"].as_f64().unwrap() - ece).abs() < 1e-6, "{ece}");
}

#[test]
fn all_scores_are_the_same_on_any_number_of_ranks_and_add_up() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 53]);
    let out = setting.trained("out", 0, &["--set", "epochs=1", "--set", "schedule.base_lr=0.002"]);
    let table = |ranks: usize| setting.out(&format!("{ranks}.csv"));
    let scored = |ranks: usize| eval(&out, ranks, &["--json", "--csv", &table(ranks)]);
    let alone = scored(0);
    // the data set is taken from the recipe
    assert!(alone.stderr.contains("model.h5") && alone.stderr.contains("data set: "), "{}", alone.stderr);
    let found = alone.json();
    assert!(found["map"].as_f64().is_some_and(|map| (0.1..=1.0).contains(&map)), "{found}");
    assert_consistent(&found, &rows(&table(0)));
    for ranks in [2, 3] {
        assert_eq!(scored(ranks).json(), found, "{ranks} ranks");
        assert_eq!(fs::read(table(ranks)).unwrap(), fs::read(table(0)).unwrap(), "{ranks} ranks");
    }
    let text = eval(&out, 2, &["--top", "3"]).stdout;
    for part in ["top-3 ", "macro-F1 ", "mAP ", "ECE ", "precision", "wave 9", "most frequent confusions"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_worst_mistakes_become_a_picture() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 20]);
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    let sheet = setting.out("mistakes.png");
    let ended = eval(&out, 2, &["--errors", &sheet]);
    assert!(ended.stderr.contains("worst mistakes: "), "{}", ended.stderr);
    let picture = image::open(&sheet).unwrap();
    assert!(picture.width() > 400 && picture.height() > 300, "{} x {}", picture.width(), picture.height());
    run(0, &["eval", &out, "--errors", &setting.out("sheet.gif")]).failed(2, &["sheet.gif", ".png or .jpg"]);
}

pub fn evaluation_file(out: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(Path::new(out).join("evaluation.json")).unwrap()).unwrap()
}

#[test]
fn a_run_keeps_its_last_scoring_the_same_on_any_number_of_ranks() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 30]);
    let changes = ["--set", "reduce.codec=exact"];
    let [found, other] = [0, 2].map(|ranks| evaluation_file(&setting.trained(&ranks.to_string(), ranks, &changes)));
    assert_eq!(found, other);
    assert_eq!((&found["step"], &found["epoch"], &found["split"]), (&12.into(), &2.into(), &"test".into()));
    let scored = eval(&setting.out("0"), 0, &["--json"]).json();
    assert_eq!(found["macro_f1"], scored["macro_f1"]);
    assert_eq!(found["ece"], scored["ece"]);
    let mistakes = 30.0 * (1.0 - scored["top1"].as_f64().unwrap());
    assert_eq!(found["mistakes"], mistakes.round() as u64);
    assert_eq!(found["augmented"].as_array().unwrap().len(), 24);
    for one in found["worst"].as_array().unwrap().iter().chain(found["augmented"].as_array().unwrap()) {
        assert!(one["picture"].as_str().unwrap().starts_with("data:image/png;base64,iVBOR"), "{one}");
    }
    let page = fs::read_to_string(Path::new(&setting.out("2")).join("report.html")).unwrap();
    assert!(page.len() < 3_000_000 && page.contains(found["worst"][0]["picture"].as_str().unwrap()));
    let without = setting.trained("without", 0, &["--set", "log.report=false", "--set", "log.tensorboard=false"]);
    assert!(!Path::new(&without).join("evaluation.json").exists());
}

#[test]
fn a_stopped_run_keeps_its_last_scoring() {
    let run = SmallRun::new();
    let mut running = run.endless(0);
    running.until("score", || logged(&run.out, "\"eval\"") > 0);
    signal(running.id() as i32, libc::SIGTERM);
    let ended = running.wait(PATIENCE);
    assert_eq!(ended.status.code(), Some(75), "{}", ended.stderr);
    let page = page_of(&run.out);
    assert!(page.contains(evaluation_file(&run.out)["augmented"][0]["picture"].as_str().unwrap()));
    assert_eq!(data_of(&page)["runs"][0]["state"], "stopped");
}

/// `eval --follow` may start before the run. It then waits for the run's recipe, which names the data set, and for the
/// first checkpoint.
#[test]
fn a_follower_waits_for_its_run() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 30]);
    let out = setting.out("late");
    let mut follower = start(trireme(0, &["eval", &out, "--follow", "--threads", "1"]));
    let said = follower.stderr();
    follower.until("message", || said().contains("waiting for "));
    setting.trained("late", 0, &[]);
    let ended = follower.wait(PATIENCE).succeeded();
    ended.says(&["waiting for ", "recipe", &out]);
    assert!(ended.stdout.lines().last().unwrap().contains("step 12: "), "{}", ended.stdout);
    run(0, &["eval", &setting.out("none"), "--follow", "--once"]).failed(1, &["none"]);
}

/// On any number of ranks, a follower skips a checkpoint that cannot be read, and ends with the first error that is not
/// about the file.
#[test]
fn a_follower_skips_only_files_that_cannot_be_read() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 30]);
    let out = setting.trained("out", 0, &["--set", "checkpoint.every=6 steps"]);
    let other = setting.described("other", |manifest| manifest.classes.swap(0, 1));
    let damaged = Path::new(&out).join("checkpoints/step-00000006.h5");
    assert!(damaged.exists());
    fs::write(damaged, "no checkpoint").unwrap();
    for ranks in [0, 2] {
        let follow = |data: &str| run(ranks, &["eval", &out, "--follow", "--data", data, "--threads", "1"]);
        let ended = follow(&other).failed(1, &["the classes differ"]);
        assert_eq!(ended.stderr.matches("skipped").count(), 1, "{ranks} ranks: {}", ended.stderr);
        follow(&setting.data).succeeded().says(&["skipped", "step-00000006.h5"]);
        fs::remove_file(Path::new(&out).join("metrics-eval.jsonl")).unwrap();
    }
}

/// With `rgb`, a run on grey images can be scored on its own data set.
#[test]
fn grey_images_as_colour_images_are_scored() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 20]);
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"rgb\", \"normalize\"]"));
    let out = setting.trained("out", 0, &sets(&[&lists[0], &lists[1]]));
    let last = events(&out, "eval").pop().unwrap();
    let found = eval(&out, 0, &["--json"]).json();
    assert_eq!((&found["top1"], &found["loss"]), (&last["top1"], &last["loss"]));
    let table = setting.out("table.csv");
    run(0, &["predict", &out, &setting.data, "--out", &table]).succeeded();
    assert_eq!(fs::read_to_string(table).unwrap().lines().count(), 21);
}

/// A recipe for images of 32 pixels. The network gets crops of 28 pixels.
const CROPPED: &str = r#"
epochs = 1
batch = 8
workers = 2
schedule.base_lr = 0.003
augment.train = ["random_crop(28)", "normalize"]
augment.eval = ["center_crop(28)", "normalize"]
"#;

fn score(out: &str, ranks: usize, views: &[&str]) -> Value {
    eval(out, ranks, &[&["--json"], views].concat()).json()
}

#[test]
fn averages_of_views_are_the_same_on_any_number_of_ranks() {
    let setting = Setting::with(CROPPED, |dir| Images::new(dir, THINGS, 48, 21));
    let out = setting.trained("out", 0, &[]);
    let plain = score(&out, 0, &[]);
    for views in [&["--flip"][..], &["--corners"], &["--flip", "--corners"], &["--shift", "2"]] {
        let alone = score(&out, 0, views);
        assert_eq!(alone["count"], 21);
        assert_ne!(alone["loss"], plain["loss"], "{views:?}");
        for ranks in [2, 3] {
            assert_eq!(score(&out, ranks, views)["loss"], alone["loss"], "{views:?} on {ranks} ranks");
        }
    }
    // a run that evaluates with these views logs the same scores
    let flips = setting.trained("flips", 2, &["--set", "eval.flip=true", "--set", "eval.corners=true"]);
    let logged = events(&flips, "eval").pop().unwrap();
    let ten = score(&flips, 0, &["--flip", "--corners"]);
    for field in ["top1", "top5", "loss", "count"] {
        assert_eq!(logged[field], ten[field], "{field}");
    }
    let without =
        Setting::with(&CROPPED.replace("\"center_crop(28)\", ", "").replace("random_crop(28)", "pad_crop(2)"), |dir| {
            Images::new(dir, THINGS, 16, 8)
        });
    let out = without.trained("out", 0, &[]);
    run(0, &["eval", &out, "--corners"]).failed(2, &["center_crop(size)", "has no center_crop"]);
}

/// The scores before softmax are averaged, so a picture and its mirror image have the same result.
#[test]
fn a_picture_and_its_mirror_image_get_the_same_scores() {
    let setting = Setting::with(CROPPED, |dir| Images::new(dir, THINGS, 48, 8));
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
