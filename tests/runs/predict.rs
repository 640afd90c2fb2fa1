//! Predictions for many pictures with the real binary: how pictures are selected, and the output formats.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use support::program::{run, trireme};
use support::small_run::SmallRun;
use support::weights::{floats, model};

/// Trains a model for one step and writes five pictures to `photos` and `photos/more`, and a text file.
fn setting() -> SmallRun {
    let setting = SmallRun::trained();
    fs::create_dir_all(setting.folder.at("photos/more")).unwrap();
    for (i, name) in ["a.png", "b.png", "c, d.png", "more/e.png", "more/f.png"].into_iter().enumerate() {
        let picture = image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * 7 + y * (i as u32 + 1)) as u8]));
        picture.save(setting.folder.at(&format!("photos/{name}"))).unwrap();
    }
    setting.folder.write("photos/notes.txt", "no picture");
    setting
}

fn names(lines: &str) -> Vec<String> {
    let image =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["image"].as_str().unwrap().to_string();
    lines.lines().map(image).collect()
}

#[test]
fn folders_patterns_and_lists_of_pictures() {
    let setting = setting();
    let at = |name: &str| setting.folder.at(&format!("photos/{name}"));
    let predict = |images: &[&str]| run(0, &[&["predict", &setting.out, "--json"], images].concat());
    let all = ["a.png", "b.png", "c, d.png", "more/e.png", "more/f.png"].map(at);
    let whole = predict(&[&setting.folder.at("photos")]).succeeded();
    assert_eq!(names(&whole.stdout), all);
    assert!(whole.stderr.contains(&format!("model: {}/model.h5", setting.out)), "{}", whole.stderr);
    assert_eq!(names(&predict(&[&at("?.png"), &at("more")]).succeeded().stdout), [&all[..2], &all[3..]].concat());
    let mut command = trireme(0, &["predict", &setting.out, "--json", "-"]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(format!("{}\n{}\n", all[4], all[0]).as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(names(&String::from_utf8(ended.stdout).unwrap()), [all[4].clone(), all[0].clone()]);
    fs::create_dir(setting.folder.at("empty")).unwrap();
    predict(&[&setting.folder.at("empty")]).failed(2, &["empty", "no picture", ".png"]);
    predict(&[&at("*.gif")]).failed(2, &["*.gif", "no file matches"]);
}

#[test]
fn tables_sheets_and_features() {
    let setting = setting();
    let (photos, sheet, table) =
        (setting.folder.at("photos"), setting.folder.at("sheet.png"), setting.folder.at("out.npy"));
    let args = ["predict", &setting.out, &photos, "--csv", "--top", "2", "--sheet", &sheet, "--embed", &table];
    let ended = run(0, &args).succeeded();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((lines.len(), lines[0]), (11, "image,rank,label,class,probability"));
    assert!(lines[5].starts_with(&format!("\"{photos}/c, d.png\",1,")), "{}", lines[5]);
    let drawn = image::open(&sheet).unwrap();
    assert!(drawn.width() > 300 && drawn.height() > 200, "{} x {}", drawn.width(), drawn.height());
    let bytes = fs::read(&table).unwrap();
    let head = String::from_utf8_lossy(&bytes[10..128]).to_string();
    assert!(head.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 500), }"), "{head}");
    // the scores are the product of the features and the last layer
    let model = model(&setting.out);
    let last = model.layers.last().unwrap();
    let (weight, bias) = (&last.tensors[0].2, &last.tensors[1].2);
    let features = floats(&bytes[128..]);
    for (row, line) in features.chunks(500).zip(lines[1..].chunks(2)) {
        let score =
            |class: usize| bias[class] + weight[class * 500..][..500].iter().zip(row).map(|(w, x)| w * x).sum::<f32>();
        let scores: Vec<f64> = (0..bias.len()).map(|class| f64::from(score(class)).exp()).collect();
        let fields: Vec<&str> = line[0].rsplit(',').collect();
        let (probability, label): (f64, usize) = (fields[0].parse().unwrap(), fields[2].parse().unwrap());
        assert!((scores[label] / scores.iter().sum::<f64>() - probability).abs() < 1e-5, "{line:?}");
    }
    setting.folder.write("photos/g.png", "no picture");
    let ended = run(0, &args).failed(1, &["g.png"]);
    assert_eq!(ended.stdout.lines().count(), 11);
}

#[test]
fn a_run_is_scored_on_the_data_of_its_recipe() {
    let setting = setting();
    let given = run(0, &["eval", &setting.out, "--data", &setting.data, "--json"]).succeeded();
    let found = run(0, &["eval", &setting.out, "--json"]).succeeded();
    assert_eq!(found.stdout, given.stdout);
    let note = format!("data set: {}", setting.data);
    found.says(&[&note, "recipe"]);
    assert!(!given.stderr.contains(&note), "{}", given.stderr);
    run(2, &["eval", &setting.out, "--json"]).succeeded().says(&[&note, "recipe"]);
    fs::rename(&setting.data, setting.folder.at("elsewhere")).unwrap();
    run(0, &["eval", &setting.out]).failed(1, &[&setting.data]);
}

/// A mistake with shell patterns can name a photo as the output file.
#[test]
fn input_files_are_not_overwritten() {
    let setting = setting();
    let (a, b, model) =
        (setting.folder.at("photos/a.png"), setting.folder.at("photos/b.png"), format!("{}/model.h5", setting.out));
    let kept = [&a, &b, &model].map(|file| fs::read(file).unwrap());
    let refused = |args: &[&str], parts: &[&str]| {
        let ended = run(0, args).failed(2, parts);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        assert_eq!([&a, &b, &model].map(|file| fs::read(file).unwrap()), kept);
    };
    refused(&["predict", &model, &b, "--sheet", &a], &[&a, "not a contact sheet"]);
    refused(&["predict", &model, &a, &b, "--embed", &b], &[&b, "input files"]);
    refused(&["predict", &model, &a, "--embed", &model], &[&model, "input files"]);
    refused(&["predict", &setting.out, &a, "--embed", &model], &[&model, "NumPy"]);
    let nowhere = setting.folder.at("no/a.npy");
    refused(&["predict", &model, &a, "--embed", &nowhere], &["cannot write", &nowhere, "mkdir -p"]);
    for ranks in [0, 2] {
        let eval = ["eval", &model, "--data", &setting.data, "--csv"];
        let refused = |out: &str, part: &str| {
            let ended = run(ranks, &[&eval[..], &[out]].concat()).failed(2, &[out, part]);
            assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        };
        refused(&model, "input files");
        refused(&nowhere, "mkdir -p");
    }
    assert_eq!(fs::read(&model).unwrap(), kept[2]);
    let log = format!("{}/metrics.jsonl", setting.out);
    run(0, &["report", &setting.out, "-o", &log]).failed(2, &[&log, "HTML page"]);
    for _ in 0..2 {
        run(0, &["report", &setting.out, "-o", &setting.folder.at("page.html")]).succeeded();
    }
}
