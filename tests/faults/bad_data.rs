//! Damaged, missing or inconsistent data, tried with the real binary. Each case ends with exit code 1 and one clear
//! line on stderr, on any number of ranks, and leaves no incomplete file.

use std::fs::{self, OpenOptions};
use std::path::Path;

use support::images;
use support::images::{DIGITS, Images};
use support::program::{PATIENCE, start, trireme};
use support::small_run::{SmallRun, poke};

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}

#[test]
fn data_that_is_not_there() {
    let mut setting = SmallRun::new();
    let empty = setting.folder.at("empty");
    fs::create_dir(&empty).unwrap();
    let absent = setting.folder.at("absent");
    let file = setting.recipe.clone();
    for (dir, why) in [(absent, "no such folder"), (empty, "is empty"), (file, "is a file")] {
        setting.data = dir.clone();
        setting.refused(1, &[], &[&dir, why, "trireme data convert"]);
    }
}

#[test]
fn a_shard_cut_short_before_the_start() {
    let setting = SmallRun::new();
    let shard = setting.images.shard("train", 2);
    let whole = fs::metadata(&shard).unwrap().len();
    OpenOptions::new().write(true).open(&shard).unwrap().set_len(whole - 9).unwrap();
    let (expected, found) = (whole.to_string(), (whole - 9).to_string());
    setting.refused(1, &[], &[name(&shard), "dataset.json", &expected, &found, "cut short"]);
}

/// Tries manifests that disagree with the index about the number of records, are not valid JSON, or lack a split.
#[test]
fn a_manifest_that_contradicts_the_shards() {
    let setting = SmallRun::new();
    let mut manifest = setting.images.manifest.clone();
    let split = manifest.splits.get_mut("train").unwrap();
    (split.shards[1].count, split.count) = (13, 49);
    manifest.write(&setting.images.dir).unwrap();
    setting.refused(
        1,
        &[],
        &[name(&setting.images.shard("train", 1)), "records", "dataset.json", "says 13", "found 12"],
    );

    fs::write(setting.images.dir.join("dataset.json"), "{\"version\": 1, \"classes\": [").unwrap();
    setting.refused(1, &[], &["dataset.json", "EOF", "trireme data"]);

    let mut manifest = setting.images.manifest.clone();
    manifest.splits.remove("train");
    manifest.write(&setting.images.dir).unwrap();
    setting.refused(1, &[], &[&setting.data, "no split `train`", "`test`"]);
}

/// The program finds the damaged byte only when a rank reads the record during training.
#[test]
fn a_flipped_byte() {
    let setting = SmallRun::new();
    let path = setting.images.shard("train", 3);
    let offset = images::offset_of(&path, 7);
    poke(&path, offset + 400, |byte| byte ^ 0x20);
    let byte = format!("byte {offset}");
    for ranks in [0, 2] {
        let parts = [name(&path), "record 7", &byte, "checksum", "payload", "trireme data verify"];
        let ended = setting.train(ranks, &[]).failed(1, &parts);
        let line = ended.stderr.lines().find(|line| line.contains(&byte)).unwrap();
        assert_eq!(line.starts_with("rank "), ranks > 0, "{line}");
        // the other rank does not report the failed rank as lost
        assert!(!ended.stderr.contains(" is gone"), "{}", ended.stderr);
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

#[test]
fn a_label_out_of_range() {
    let setting = SmallRun::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            if id == 30 {
                record.label = 10;
            }
        })
    });
    for ranks in [0, 2] {
        let parts = ["train-00002-of-00004.tfrecord", "record 6", "label 10", "0 to 9", "classes"];
        setting.train(ranks, &[]).failed(1, &parts);
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

#[test]
fn an_image_of_another_size() {
    let setting = SmallRun::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            if id == 17 {
                *record = images::record(1, id, loaders::ImageSpec::new(28, 30, 1));
            }
        })
    });
    let parts = ["train-00001-of-00004.tfrecord", "record 5", "28x30x1", "28x28x1", "resize"];
    setting.train(2, &[]).failed(2, &parts);
    setting.assert_no_model();
}

#[test]
fn splits_of_different_image_sizes() {
    let setting = SmallRun::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            *record = images::record(1, id, loaders::ImageSpec::new(28, 30, 1));
        })
    });
    setting.refused(1, &[], &["split train are 28x30x1", "28x28x1"]);
}

/// Damage in the evaluation split is found after the first epoch. No incomplete file may remain.
#[test]
fn a_flipped_byte_in_the_test_split() {
    let setting = SmallRun::new();
    let path = setting.images.shard("test", 1);
    let offset = images::offset_of(&path, 2);
    poke(&path, offset + 300, |byte| !byte);
    let byte = format!("byte {offset}");
    setting.train(2, &[]).failed(1, &[name(&path), "record 2", &byte, "checksum", "payload"]);
    setting.assert_no_model();
}

/// Ranks with different data sets must end with an error, because they would train on different images.
#[test]
fn ranks_with_different_data() {
    let setting = SmallRun::new();
    let other = setting.folder.at("other");
    setting.images.copy_to(Path::new(&other));
    let mut manifest = setting.images.manifest.clone();
    manifest.mean = vec![0.9];
    manifest.write(Path::new(&other)).unwrap();
    let mut program = trireme(1, &setting.args(&[]));
    let second = ["train", &setting.recipe, "--data", &other, "--out", &setting.out, "--threads", "1"];
    program.args([":", "-n", "1"]).arg(env!("CARGO_BIN_EXE_trireme")).args(second);
    // the recipe key `data` (a path) also differs between the ranks, but the error must report that the data sets
    // differ
    start(program).wait(PATIENCE).failed(1, &["rank 1: ", "data set differs", "rank 0"]);
    assert!(!Path::new(&setting.out).exists());
}
