//! Predictions for many pictures with the real binary: how pictures are selected, and the output formats. Each image
//! occurs once and in order, and the output bytes do not depend on the number of ranks or on a kill and restart.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::blobs;
use support::images::DIGITS;
use support::program::{PATIENCE, run, signal, start, trireme};
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
    let stage = setting.folder.at("stage");
    for more in [&[][..], &["--stage", &stage], &["--follow", "--once"]] {
        let ended = run(0, &[&["eval", &setting.out][..], more].concat());
        ended.failed(1, &[&setting.data, "The model's recipe", "--data"]);
    }
    // the advice is wrong for a folder that the user has named
    let named = run(0, &["eval", &setting.out, "--data", &setting.data]).failed(1, &[&setting.data]);
    assert!(!named.stderr.contains("recipe"), "{}", named.stderr);
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

/// Trains a model for one step and writes 30 pictures to `photos`.
fn thirty_pictures() -> SmallRun {
    let setting = SmallRun::trained();
    pictures(&setting, 30);
    setting
}

fn pictures(setting: &SmallRun, count: u32) {
    fs::create_dir_all(setting.folder.at("photos")).unwrap();
    for i in 0..count {
        let picture = image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * (i % 13) + y * (i + 1)) as u8]));
        picture.save(setting.folder.at(&format!("photos/{i:04}.png"))).unwrap();
    }
}

fn predict(setting: &SmallRun, ranks: usize, out: &str, more: &[&str]) -> support::program::ProgramOutput {
    let (photos, out) = (setting.folder.at("photos"), setting.folder.at(out));
    let args = ["predict", &setting.out, &photos, "--out", &out, "--batch", "4", "--threads", "1"];
    run(ranks, &[&args, more].concat())
}

fn bytes(setting: &SmallRun, name: &str) -> Vec<u8> {
    fs::read(setting.folder.at(name)).unwrap()
}

#[test]
fn the_bytes_are_the_same_on_any_number_of_ranks() {
    let setting = thirty_pictures();
    for ending in ["csv", "jsonl", "parquet"] {
        for ranks in [0, 1, 2, 3] {
            let features = setting.folder.at(&format!("{ranks}.{ending}.npy"));
            let more = ["--top", "2", "--logits", "--features", &features];
            let ended = predict(&setting, ranks, &format!("{ranks}.{ending}"), &more).succeeded();
            assert!(ended.stderr.contains("30 images") && ended.stdout.is_empty(), "{}", ended.stderr);
            for name in [format!("{ranks}.{ending}"), format!("{ranks}.{ending}.npy")] {
                let first = name.replacen(&ranks.to_string(), "0", 1);
                assert_eq!(bytes(&setting, &name), bytes(&setting, &first), "{name}");
                assert!(!Path::new(&setting.folder.at(&format!("{name}.partial"))).exists(), "{name}");
            }
        }
    }
    // rows must be equal to predictions for single images
    let csv = String::from_utf8(bytes(&setting, "0.csv")).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    let head = "image,error,label,class,probability,label_2,class_2,probability_2,logit wave 0,";
    assert!(lines.len() == 31 && lines[0].starts_with(head), "{}", lines[0]);
    let photos = setting.folder.at("photos");
    let single = run(0, &["predict", &setting.out, &photos, "--top", "2", "--json"]).succeeded().stdout;
    let rows = String::from_utf8(bytes(&setting, "0.jsonl")).unwrap();
    for ((line, row), single) in lines[1..].iter().zip(rows.lines()).zip(single.lines()) {
        let [row, single]: [Value; 2] = [row, single].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(row["image"], single["image"]);
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields[0], fields.len()), (row["image"].as_str().unwrap(), 18), "{line}");
        for place in 0..2 {
            let [many, one] = [&row, &single].map(|object| &object["classes"][place]);
            assert_eq!((&many["label"], &many["class"]), (&one["label"], &one["class"]));
            let [a, b] = [many, one].map(|class| class["probability"].as_f64().unwrap());
            assert!((a - b).abs() < 1e-6, "{a} {b}");
            assert_eq!(fields[4 + 3 * place], a.to_string());
        }
        let logits: Vec<f64> = row["logits"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let total: f64 = logits.iter().map(|v| v.exp()).sum();
        let best = logits[row["classes"][0]["label"].as_u64().unwrap() as usize];
        assert!((best.exp() / total - row["classes"][0]["probability"].as_f64().unwrap()).abs() < 1e-6);
    }
    assert!(bytes(&setting, "0.parquet").starts_with(b"PAR1"));
    let table = setting.folder.at("single.npy");
    run(0, &["predict", &setting.out, &photos, "--embed", &table]).succeeded();
    let [many, one] = ["0.csv.npy", "single.npy"].map(|name| bytes(&setting, name));
    assert_eq!((many.len(), &many[..128]), (one.len(), &one[..128]));
    assert!(
        floats(&many[128..]).into_iter().zip(floats(&one[128..])).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()))
    );
}

#[test]
fn a_killed_prediction_continues() {
    let setting = thirty_pictures();
    pictures(&setting, 600);
    let features = ["--features", &setting.folder.at("killed.npy")].map(String::from);
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let whole = setting.folder.at("whole.npy");
    predict(&setting, 0, "whole.csv", &["--features", &whole]).succeeded();
    let (photos, out) = (setting.folder.at("photos"), setting.folder.at("killed.csv"));
    let journal = setting.folder.at("killed.csv.partial");
    let rows = || fs::read(&journal).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count());
    for (ranks, least) in [(2, 20), (3, 150)] {
        let args = ["predict", &setting.out, &photos, "--out", &out, "--batch", "4", "--threads", "1"];
        let mut running = start(trireme(ranks, &[&args[..], &features].concat()));
        let begun = Instant::now();
        running.until("rows", || rows() > least || begun.elapsed() > Duration::from_secs(60));
        drop(running);
        assert!((least..600).contains(&rows()) && !Path::new(&out).exists(), "{} rows", rows());
    }
    // append an incomplete line, as if the program had been killed during a write
    fs::OpenOptions::new().append(true).open(&journal).unwrap().write_all(b"{\"image\":\"x").unwrap();
    // the unfinished predictions of one command cannot be continued with other options
    predict(&setting, 0, "killed.csv", &["--top", "3"])
        .failed(2, &["killed.csv.partial", "another prediction", "remove"]);
    let ended = predict(&setting, 1, "killed.csv", &features).succeeded();
    assert!(ended.stderr.contains("600 images, ") && ended.stderr.contains(" of them kept "), "{}", ended.stderr);
    assert_eq!(bytes(&setting, "killed.csv"), bytes(&setting, "whole.csv"));
    assert_eq!(bytes(&setting, "killed.npy"), bytes(&setting, "whole.npy"));
    assert!(!Path::new(&journal).exists());
}

/// A job that was submitted twice starts two predictions with the same table.
#[test]
fn a_second_prediction_at_the_same_time_is_refused() {
    let setting = SmallRun::trained();
    pictures(&setting, 600);
    let at = |name: &str| setting.folder.at(name);
    predict(&setting, 0, "whole.csv", &["--features", &at("whole.npy")]).succeeded();
    let (photos, out, features) = (at("photos"), at("twice.csv"), at("twice.npy"));
    let args = ["predict", &setting.out, &photos, "--out", &out, "--batch", "4", "--threads", "1"];
    let mut first = start(trireme(0, &[&args[..], &["--features", &features]].concat()));
    let rows = || fs::read(at("twice.csv.partial")).map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count());
    first.until("rows", || rows() > 1);
    signal(first.id() as i32, libc::SIGSTOP);
    let named = format!("process {} on ", first.id());
    for ranks in [0, 2] {
        let ended = predict(&setting, ranks, "twice.csv", &["--features", &features]);
        ended.failed(2, &[&out, &named, "another --out"]);
        let ended = predict(&setting, ranks, "other.csv", &["--features", &features]);
        ended.failed(2, &[&features, &named, "another --features"]);
    }
    assert!(!Path::new(&at("other.csv.partial")).exists() && !Path::new(&at(".other.csv.trireme-lock")).exists());
    // a killed prediction does not prevent the next one
    drop(first);
    assert!(Path::new(&at(".twice.csv.trireme-lock")).exists() && !Path::new(&out).exists());
    predict(&setting, 2, "twice.csv", &["--features", &features]).succeeded();
    assert_eq!(bytes(&setting, "twice.csv"), bytes(&setting, "whole.csv"));
    assert_eq!(bytes(&setting, "twice.npy"), bytes(&setting, "whole.npy"));
    let left = fs::read_dir(setting.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with("-lock")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Without an output folder the ranks do not know each other's states. They still end at the limit and say the truth.
#[test]
fn a_rank_that_stays_stopped_ends_a_prediction() {
    let setting = SmallRun::trained();
    pictures(&setting, 600);
    let (photos, out) = (setting.folder.at("photos"), setting.folder.at("stopped.csv"));
    let journal = setting.folder.at("stopped.csv.partial");
    let rows = || fs::read(&journal).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count());
    let limits = ["--stall-warn", "off", "--stall-abort", "7s"];
    let args = ["predict", &setting.out, &photos, "--out", &out, "--batch", "1", "--threads", "1"];
    let mut running = start(trireme(2, &[&args[..], &limits].concat()));
    running.until("rows", || rows() > 20);
    signal(running.ranks()[1] as i32, libc::SIGSTOP);
    // ten times the limit would be longer than the test waits
    running.wait(PATIENCE).failed(1, &["waiting in ", "opened its output folder", "lasted 7 s"]);
}

#[test]
fn images_that_cannot_be_read_have_rows_with_their_errors() {
    let setting = thirty_pictures();
    fs::write(setting.folder.at("photos/0007.png"), b"no picture").unwrap();
    fs::write(setting.folder.at("photos/0029.png"), b"").unwrap();
    for ranks in [0, 3] {
        let (out, features) = (format!("{ranks}.csv"), setting.folder.at(&format!("{ranks}.npy")));
        let ended = predict(&setting, ranks, &out, &["--features", &features]);
        ended.failed(1, &["0007.png", "neither a PNG nor a JPEG"]).says(&["0029.png"]);
        let text = String::from_utf8(bytes(&setting, &out)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 31);
        for (id, line) in lines[1..].iter().enumerate() {
            let is_bad = id == 7 || id == 29;
            assert_eq!(line.contains("0007.png: ") || line.contains("0029.png: "), is_bad, "{line}");
            assert_eq!(line.ends_with(",,,"), is_bad, "{line}");
        }
        assert_eq!(bytes(&setting, &out), bytes(&setting, "0.csv"));
        let values = floats(&bytes(&setting, &format!("{ranks}.npy"))[128..]);
        for (id, row) in values.chunks(values.len() / 30).enumerate() {
            assert_eq!(row.iter().all(|value| value.is_nan()), id == 7 || id == 29, "{id}");
        }
    }
}

#[test]
fn data_sets_lists_and_wrong_requests() {
    let setting = thirty_pictures();
    let at = |name: &str| setting.folder.at(name);
    let many = |ranks: usize, image: &str, out: &str, more: &[&str]| {
        run(ranks, &[&["predict", &setting.out, image, "--out", &at(out), "--threads", "1"], more].concat())
    };
    for ranks in [1, 2] {
        many(ranks, &setting.data, &format!("set-{ranks}.jsonl"), &["--batch", "3"]).succeeded();
        many(ranks, &setting.data, &format!("train-{ranks}.csv"), &["--split", "train"]).succeeded();
    }
    assert_eq!(bytes(&setting, "set-1.jsonl"), bytes(&setting, "set-2.jsonl"));
    // a table may overwrite a table
    many(2, &setting.data, "set-1.jsonl", &["--batch", "3"]).succeeded();
    assert_eq!(bytes(&setting, "set-1.jsonl"), bytes(&setting, "set-2.jsonl"));
    assert_eq!(bytes(&setting, "train-1.csv"), bytes(&setting, "train-2.csv"));
    let rows = String::from_utf8(bytes(&setting, "set-1.jsonl")).unwrap();
    let csv = at("each.csv");
    run(0, &["eval", &setting.out, "--data", &setting.data, "--csv", &csv]).succeeded();
    let scored = fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), 10);
    for (id, (row, scored)) in rows.lines().zip(scored.lines().skip(1)).enumerate() {
        let row: Value = serde_json::from_str(row).unwrap();
        assert_eq!(row["image"], format!("test#{id}"));
        assert_eq!(row["classes"].as_array().unwrap().len(), 1, "without --top, a table has the most probable class");
        assert_eq!(row["classes"][0]["label"].to_string(), scored.split(',').nth(5).unwrap());
    }
    // names on standard input reach all ranks
    let mut command = trireme(2, &["predict", &setting.out, "-", "--out", &at("list.csv"), "--threads", "1"]);
    let mut running = command.stdin(Stdio::piped()).spawn().unwrap();
    let names = format!("{}\n{}\n", at("photos/0011.png"), at("photos/0003.png"));
    running.stdin.take().unwrap().write_all(names.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success());
    let list = String::from_utf8(bytes(&setting, "list.csv")).unwrap();
    let images: Vec<&str> = list.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(images, [at("photos/0011.png"), at("photos/0003.png")]);
    many(2, &at("photos"), "x.txt", &[]).failed(2, &["--out", "x.txt", ".parquet"]);
    many(2, &at("photos"), "x.csv", &["--split", "test"]).failed(2, &["--split", "data set"]);
    many(0, &setting.data, "x.csv", &["--split", "other"]).failed(2, &["other"]);
    many(2, &at("photos"), "x.csv", &["--threshold", "0.5"]).failed(2, &["--threshold", "--top"]);
    // the files of a pattern are inputs, too
    fs::write(at("photos/f.npy"), b"\x93NUMPY\x01\0").unwrap();
    many(2, &at("photos/*"), "x.csv", &["--features", &at("photos/f.npy")]).failed(2, &["f.npy", "input files"]);
    // the same file, named in the same and in another way
    for features in [at("x.csv"), at("photos/../x.csv")] {
        let ended = many(2, &at("photos"), "x.csv", &["--features", &features]);
        ended.failed(2, &["--out and --features", "x.csv", "another name"]);
    }
    // the name of the unfinished table, which ends with .partial, has at most 255 bytes
    let [longest, longer] = [243, 244].map(|count| format!("{}.csv", "x".repeat(count)));
    many(2, &at("photos/0001.png"), &longest, &[]).succeeded();
    assert_eq!(bytes(&setting, &longest).iter().filter(|byte| **byte == b'\n').count(), 2);
    many(2, &at("photos/0001.png"), &longer, &[]).failed(2, &["--out", &longer, "247 bytes"]);
    fs::write(at("notes.csv"), "my notes").unwrap();
    many(2, &at("photos"), "notes.csv", &[]).failed(2, &["notes.csv"]);
    run(0, &["predict", &setting.out, &at("photos"), "--logits"]).failed(2, &["--logits", "--out"]);
    run(0, &["predict", &setting.out, &at("photos/0001.png"), "--layout", "NHWC"]).failed(2, &["--layout", "PNG"]);
}

/// A child process reads the HDF5 file. It must not read the file's name as an option.
#[test]
fn the_name_of_a_file_may_begin_with_a_dash() {
    let setting = SmallRun::trained();
    fs::copy(format!("{}/model.h5", setting.out), setting.folder.at("-m.h5")).unwrap();
    let mut command = trireme(0, &["data", "convert", "hdf5", "--images", "nothing", "--", "-m.h5", "converted"]);
    command.current_dir(setting.folder.path());
    start(command).wait(PATIENCE).failed(1, &["-m.h5", "no array `nothing`"]);
}

#[test]
fn numbers_have_a_column_for_each_target() {
    let setting = SmallRun::of(|dir| blobs::images(dir, DIGITS, [48, 10]));
    setting.train(0, &["--max-steps", "2", "--set", "loss.kind=mse"]).succeeded();
    for ranks in [1, 3] {
        let out = setting.folder.at(&format!("{ranks}.csv"));
        run(ranks, &["predict", &setting.out, &setting.data, "--out", &out, "--threads", "1", "--batch", "2"])
            .succeeded();
    }
    assert_eq!(bytes(&setting, "1.csv"), bytes(&setting, "3.csv"));
    let text = String::from_utf8(bytes(&setting, "1.csv")).unwrap();
    assert!(text.lines().count() == 11 && text.starts_with("image,file,error,x,y,radius\ntest#0,,,"), "{text}");
    let csv = setting.folder.at("each.csv");
    run(0, &["eval", &setting.out, "--data", &setting.data, "--csv", &csv]).succeeded();
    for (line, scored) in text.lines().zip(fs::read_to_string(&csv).unwrap().lines()).skip(1) {
        let [many, scored]: [Vec<&str>; 2] = [line, scored].map(|line| line.split(',').collect());
        for at in 0..3 {
            let [a, b] = [many[3 + at], scored[4 + 2 * at]].map(|field| field.parse::<f32>().unwrap());
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{line}");
        }
    }
}
