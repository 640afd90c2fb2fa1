//! Reading data during training, with the real binary under `mpirun`: shuffle windows, mapped and read shards, copies
//! on a node's disk, and invalid records. The results must not depend on the number of ranks.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;

use support::images::{self, DIGITS, Images};
use support::mentions;
use support::program::{events, files, run, sets};
use support::setting::Setting;
use support::small_run::poke;
use support::weights::{model, values};

const RECIPE: &str = r#"
model = "lenet"
epochs = 2
seed = 5
batch = 24
workers = 6
optimizer.momentum = 0.9
schedule.base_lr = 0.001
augment.train = ["random_crop(28)", "normalize"]
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [211, 30])
}

fn spoil(setting: &Setting, shard: usize, record: usize) {
    let path = setting.images.shard("train", shard);
    poke(&path, images::offset_of(&path, record) + 100, |byte| byte ^ 1);
}

/// Returns the results of a run: samples and losses of its steps, its scores, and the digest of its parameters.
fn computed(out: &str) -> Vec<Value> {
    let pick = |line: &Value, keys: &[&str]| -> Value { keys.iter().map(|key| line[*key].clone()).collect() };
    let steps = events(out, "step").into_iter().map(|line| pick(&line, &["step", "samples", "loss", "top1"]));
    let evals = events(out, "eval").into_iter().map(|line| pick(&line, &["top1", "top5", "loss", "count"]));
    let end = events(out, "end").into_iter().map(|line| pick(&line, &["digest"]));
    steps.chain(evals).chain(end).collect()
}

#[test]
fn windows_and_ways_of_reading_do_not_depend_on_ranks() {
    let setting = setting();
    let window = ["--set", "shuffle=window(2)"];
    let (one, ended) = (setting.out("one"), setting.train("one", 1, &window).succeeded());
    ended.says(&["window(2)", " 35 samples"]);
    ended.says(&["mmap", "shards read ahead"]);
    assert!(!ended.stderr.contains("loader: "), "there must be no advice after 9 steps:\n{}", ended.stderr);
    let expected = computed(&one);
    assert_eq!(expected.len(), 18 + 2 + 1);
    assert!(expected[20][0].is_string(), "no digest");
    for (ranks, io) in [(2, "mmap"), (3, "read"), (1, "read")] {
        let set = format!("loader.io={io}");
        let more = [&window[..], &["--set", &set, "--loader-threads", "2"]].concat();
        let out = setting.trained(&format!("{ranks}-{io}"), ranks, &more);
        assert_eq!(computed(&out), expected, "{ranks} ranks, {io}");
    }
    let full = setting.trained("full", 2, &[]);
    assert_ne!(computed(&full), expected, "the windows must change the order");
    let epochs = events(&one, "epoch");
    for key in ["data_wait_s", "queue_depth", "bytes", "read_us", "decode_us", "transform_us", "slot_wait_us"] {
        assert!(epochs[0]["loader"][key].is_number(), "{key} in {}", epochs[0]);
    }
    assert_eq!(epochs[0]["loader"]["skipped"], 0);
    assert!(epochs[0]["loader"]["bytes"].as_u64() > Some(211 * 28 * 28));
}

/// Skipped records are removed from their workers' batches. The gradient is the mean over the remaining records and
/// does not depend on the number of ranks.
#[test]
fn skipped_records_are_counted_and_do_not_depend_on_ranks() {
    let setting = setting();
    let spoilt = [(0, 3), (1, 0), (1, 1), (3, 52)];
    spoilt.iter().for_each(|&(shard, record)| spoil(&setting, shard, record));
    let ended = setting.train("fail", 2, &[]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    mentions(&ended.stderr, &["checksum", "payload"]);

    let skip = ["--set", "loader.on_corrupt=skip"];
    let said = setting.train("1", 1, &skip).succeeded().stderr;
    let skipped: Vec<&str> = said.lines().filter(|line| line.starts_with("skipped: ")).collect();
    assert_eq!(skipped.len(), 2 * spoilt.len(), "{said}");
    let named = |line: &&&str| line.contains("train-00001-of-00004.tfrecord") && line.contains("record 1 ");
    assert_eq!(skipped.iter().filter(named).count(), 2, "{said}");
    mentions(&said, &["4 bad records"]);
    for ranks in [2, 3] {
        let out = setting.trained(&ranks.to_string(), ranks, &skip);
        assert_eq!(computed(&out), computed(&setting.out("1")), "{ranks} ranks");
        assert!(events(&out, "epoch").iter().all(|epoch| epoch["loader"]["skipped"] == 4));
    }
    // an epoch that was interrupted and resumed counts all of its skipped records
    setting.trained("parts", 3, &[&skip[..], &["--max-steps", "14"]].concat());
    let out = setting.trained("parts", 1, &[&skip[..], &["--resume", "auto"]].concat());
    assert_eq!(events(&out, "epoch").last().unwrap()["loader"]["skipped"], 4);
}

/// A step over a batch of 24 with 4 invalid records equals a step over the other 20: the same loss, and the same
/// gradient except for rounding.
#[test]
fn the_gradient_is_the_mean_over_those_that_are_left() {
    // the invalid records have the last ids, so that the others keep their ids and thus their draws for dropout and crops
    let bad_labels = |id: u64, record: &mut images::Record| record.label = if id < 20 { record.label } else { 77 };
    let recipe = RECIPE.replace("momentum = 0.9", "momentum = 0.0");
    let good = Setting::new(&recipe, DIGITS, [20, 8]);
    let spoilt = Setting::with(&recipe, |dir| Images::edited(dir, DIGITS, 24, 8, bad_labels));
    let step = |name: &str, setting: &Setting, lr: &str, keys: &[&str]| {
        let lr = format!("schedule.base_lr={lr}");
        let keys = sets(&[&["workers=1", &lr], keys].concat());
        let out = setting.trained(name, 0, &[&keys[..], &["--max-steps", "1"]].concat());
        (values(&model(&out).layers), setting.losses(name)[0])
    };
    let (before, _) = step("before", &good, "0", &["batch=20"]);
    let (want, loss) = step("20", &good, "1", &["batch=20"]);
    let (got, other) = step("24", &spoilt, "1", &["batch=24", "loader.on_corrupt=skip"]);
    assert!((loss - other).abs() < 1e-6 * loss, "losses {loss} and {other}");
    let norm = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    let (length, difference) = (norm(&before, &want), norm(&got, &want));
    assert!(length > 0.01 && difference < 1e-5 * length, "gradients of length {length} differ by {difference}");
}

#[test]
fn staging_copies_once_a_node_and_changes_nothing() {
    let setting = setting();
    let stage = setting.folder.at("local disk");
    let plain = setting.trained("plain", 2, &[]);
    let said = setting.train("staged", 2, &["--stage", &stage]).succeeded().stderr;
    let out = setting.out("staged");
    assert_eq!(said.lines().filter(|line| line.starts_with("staged in ")).count(), 1, "{said}");
    assert_eq!(computed(&out), computed(&plain));
    let copied = files(&stage);
    // 4 + 2 shards with their indexes, the manifest and the list of copies, but no incomplete file
    assert_eq!(copied.len(), 14, "{copied:?}");
    let recipe = fs::read_to_string(Path::new(&out).join("recipe.toml")).unwrap();
    assert!(!recipe.contains("local disk"), "the recipe must not contain the copy:\n{recipe}");

    // the copy is used again; only missing or changed files are copied
    let copy =
        Path::new(&stage).join(copied.iter().find(|name| name.ends_with("train-00002-of-00004.tfrecord")).unwrap());
    fs::write(&copy, b"cut short").unwrap();
    let again = setting.train("again", 0, &["--stage", &stage]).succeeded();
    again.says(&["staged in ", " MB copied", "already there"]);
    assert_eq!(computed(&setting.out("again")), computed(&plain));
    assert_eq!(fs::metadata(&copy).unwrap().len(), fs::metadata(setting.images.shard("train", 2)).unwrap().len());

    let model = Path::new(&plain).join("model.h5").display().to_string();
    let data = setting.images.arg();
    let score = |more: &[&str]| {
        let args = ["eval", &model, "--data", &data, "--threads", "1", "--json"];
        run(2, &[&args, more].concat()).succeeded().stdout
    };
    assert_eq!(score(&["--stage", &stage, "--io", "read", "--loader-threads", "2"]), score(&[]));
}

#[test]
fn a_failed_stage_folder_is_one_message() {
    let setting = setting();
    let file = setting.folder.write("file", "no folder");
    for ranks in [0, 2] {
        setting.train(&format!("out{ranks}"), ranks, &["--stage", &file]).failed(1, &["cannot create ", "/file: "]);
    }
    let (user, others) = (fs::metadata(setting.folder.path()).unwrap().uid(), setting.folder.at("others"));
    let own = Path::new(&others).join(format!("trireme-{user}"));
    fs::create_dir_all(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    for ranks in [0, 2] {
        setting.train(&format!("others{ranks}"), ranks, &["--stage", &others]).failed(1, &["(mode 755)", "--stage"]);
    }
    // only root may change the owner of a folder
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    match std::os::unix::fs::chown(&own, Some(12_345), None) {
        Ok(()) => {
            setting.train("given", 2, &["--stage", &others]).failed(1, &["user 12345", "--stage"]);
        }
        Err(_) => support::skip("the folder of another user, which only root can create"),
    }
    // the recipe names a data set that does not exist, and there is nothing to copy
    let (out, stage) = (setting.out("out"), setting.folder.at("local disk"));
    for ranks in [0, 2] {
        let ended = run(ranks, &["train", &setting.recipe, "--out", &out, "--stage", &stage]);
        ended.failed(2, &["data: there is no folder", "given with --data", "name the data set with --data"]);
    }
    setting.train("order", 2, &["--set", "shuffle=window(0)"]).failed(2, &["shuffle", "window(k)"]);
}
