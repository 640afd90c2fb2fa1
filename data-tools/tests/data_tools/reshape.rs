//! Tests commands that make data sets from others (reshard, merge, split, sample), and WebDataset archives.

use crate::common::Temp;
use crate::common::pictures::*;
use crate::common::{contents, mnist};
use data_tools::{
    ConvertOptions, ReshapeOptions, Share, convert, export_webdataset, merge, reshard, sample, split, verify,
};
use loaders::{Dataset, Manifest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::mentions;

fn options() -> ReshapeOptions {
    ReshapeOptions { shards: 3, progress: false, ..ReshapeOptions::default() }
}

/// Writes a converted folder of 12 cats and 7 dogs.
fn photos(temp: &Temp) -> PathBuf {
    let out = temp.path("photos");
    small(&temp.path("src"));
    convert("folder", &temp.path("src"), &out, &ConvertOptions { shards: 2, progress: false, ..Default::default() })
        .unwrap();
    out
}

/// Returns the payloads of a split in order.
fn payloads(dir: &Path, split: &str) -> Vec<Vec<u8>> {
    let split = Dataset::open(dir).unwrap().split(split).unwrap();
    let mut copy = Vec::new();
    (0..split.len())
        .map(|id| {
            let (shard, number) = split.locate(id).unwrap();
            split.shard(shard).unwrap().record(number, &mut copy).unwrap().to_vec()
        })
        .collect()
}

/// Counts a split's images per class.
fn counts(dir: &Path, name: &str) -> BTreeMap<String, usize> {
    let split = Dataset::open(dir).unwrap().split(name).unwrap();
    let mut counts = BTreeMap::new();
    for (label, ..) in records(dir, name).values() {
        *counts.entry(split.class_names()[*label as usize].clone()).or_default() += 1;
    }
    counts
}

fn pairs(list: &[(&str, usize)]) -> BTreeMap<String, usize> {
    list.iter().map(|(name, count)| (name.to_string(), *count)).collect()
}

#[test]
fn reshard_copies_records_to_the_byte() {
    let temp = Temp::new();
    let dir = photos(&temp);
    let made = reshard(&dir, &temp.path("a"), false, &options()).unwrap();
    assert_eq!((made.manifest.splits["train"].shards.len(), made.manifest.splits["train"].count), (3, 19));
    assert_eq!(payloads(&temp.path("a"), "train"), payloads(&dir, "train"));
    let (old, new) = (Manifest::read(&dir).unwrap(), Manifest::read(&temp.path("a")).unwrap());
    assert_eq!((&old.mean, &old.std, &old.classes), (&new.mean, &new.std, &new.classes));
    assert_eq!(
        (old.splits["train"].sizes, old.splits["train"].measured),
        (new.splits["train"].sizes, new.splits["train"].measured)
    );
    assert!(verify(&temp.path("a"), 1).unwrap().is_ok());
    // Shuffled: the same records in a different order, independent of the number of threads.
    for jobs in [1, 3] {
        reshard(&dir, &temp.path(&format!("s{jobs}")), true, &ReshapeOptions { jobs, seed: 5, ..options() }).unwrap();
    }
    assert!(contents(&temp.path("s1")) == contents(&temp.path("s3")));
    let (mut mixed, mut before) = (payloads(&temp.path("s1"), "train"), payloads(&dir, "train"));
    assert_ne!(mixed, before);
    mixed.sort();
    before.sort();
    assert_eq!(mixed, before);
    let error = reshard(&dir, &temp.path("a"), false, &options()).unwrap_err();
    assert!(error.is_usage(), "{error}");
}

#[test]
fn merge_joins_classes_by_name() {
    let temp = Temp::new();
    let dir = photos(&temp);
    for (i, class) in ["ant", "dog", "dog"].iter().enumerate() {
        write(&temp.path(&format!("more/train/{class}/{i}.jpg")), &jpeg(30, 30, 90 + i as u32));
    }
    write(&temp.path("more/test/ant/9.jpg"), &jpeg(30, 30, 99));
    let other = temp.path("other");
    convert("folder", &temp.path("more"), &other, &ConvertOptions { progress: false, ..Default::default() }).unwrap();
    let out = temp.path("out");
    let made = merge(&[&dir, &other], &out, &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog", "ant"]);
    assert_eq!(counts(&out, "train"), pairs(&[("cat", 12), ("dog", 9), ("ant", 1)]));
    assert_eq!(counts(&out, "test"), pairs(&[("ant", 1)]));
    assert!(verify(&out, 1).unwrap().is_ok());
    let all = records(&out, "train");
    for (name, record) in records(&other, "train") {
        assert_eq!(all[&name].4, record.4, "{name}");
    }
    // The mean is measured again, here on all images.
    let stats = data_tools::stats(&out, "train", 1).unwrap();
    assert!(stats.mean.iter().zip(&made.manifest.mean).all(|(a, b)| (a - b).abs() < 1e-12), "{stats}");
    let error = merge(&[&dir], &temp.path("x"), &options()).unwrap_err();
    assert!(error.is_usage(), "{error}");
    // Grey images count as colour images if there are any.
    mnist(&temp.path("mnist-src"), false, false);
    convert("mnist", &temp.path("mnist-src"), &temp.path("mnist"), &ConvertOptions::default()).unwrap();
    let made = merge(&[&dir, &temp.path("mnist")], &temp.path("x"), &options()).unwrap();
    assert_eq!((made.manifest.mean.len(), made.manifest.classes.len()), (3, 12));
    let stats = data_tools::stats(&temp.path("x"), "train", 1).unwrap();
    assert!(stats.mean.iter().zip(&made.manifest.mean).all(|(a, b)| (a - b).abs() < 1e-12), "{stats}");
}

#[test]
fn split_draws_a_share_of_each_class() {
    let temp = Temp::new();
    let dir = photos(&temp);
    let out = temp.path("out");
    split(&dir, &out, "train", "validation", Share::Fraction(0.25), &options()).unwrap();
    assert_eq!(counts(&out, "validation"), pairs(&[("cat", 3), ("dog", 2)]));
    assert_eq!(counts(&out, "train"), pairs(&[("cat", 9), ("dog", 5)]));
    let (train, drawn) = (records(&out, "train"), records(&out, "validation"));
    assert!(drawn.keys().all(|name| !train.contains_key(name)));
    assert!(verify(&out, 1).unwrap().is_ok());
    let other = ReshapeOptions { seed: 1, ..options() };
    split(&dir, &temp.path("b"), "train", "holdout", Share::PerClass(2), &other).unwrap();
    assert_eq!(counts(&temp.path("b"), "holdout"), pairs(&[("cat", 2), ("dog", 2)]));
    for (from, into, share, parts) in [
        ("test", "x", Share::PerClass(1), ["no split", "`test`"]),
        ("train", "train", Share::PerClass(1), ["already", "split `train`"]),
        ("train", "a/b", Share::PerClass(1), ["`a/b`", "name"]),
        ("train", "x", Share::Fraction(1.0), ["fraction 1 ", "below 1"]),
        ("train", "x", Share::Fraction(0.001), ["split x ", "no images"]),
    ] {
        mentions(split(&dir, &temp.path("c"), from, into, share, &options()).unwrap_err(), &parts);
    }
    assert!(!temp.path("c").exists());
}

#[test]
fn sample_keeps_the_classes() {
    let temp = Temp::new();
    let dir = photos(&temp);
    sample(&dir, &temp.path("a"), Share::Fraction(0.5), &options()).unwrap();
    assert_eq!(counts(&temp.path("a"), "train"), pairs(&[("cat", 6), ("dog", 4)]));
    sample(&dir, &temp.path("b"), Share::PerClass(1), &options()).unwrap();
    assert_eq!(counts(&temp.path("b"), "train"), pairs(&[("cat", 1), ("dog", 1)]));
    // At least one image of each class is kept.
    sample(&dir, &temp.path("c"), Share::Fraction(0.01), &options()).unwrap();
    assert_eq!(counts(&temp.path("c"), "train"), pairs(&[("cat", 1), ("dog", 1)]));
    let all = records(&dir, "train");
    assert!(records(&temp.path("a"), "train").iter().all(|(name, record)| all[name] == *record));
}

#[test]
fn archives_come_back_as_the_same_data_set() {
    let temp = Temp::new();
    let dir = photos(&temp);
    let done = export_webdataset(&dir, &temp.path("tars"), 2, false).unwrap();
    assert_eq!((done.archives, done.samples), (2, 19));
    export_webdataset(&dir, &temp.path("again"), 1, false).unwrap();
    assert!(contents(&temp.path("tars")) == contents(&temp.path("again")));
    let back = temp.path("back");
    convert("webdataset", &temp.path("tars"), &back, &ConvertOptions { progress: false, ..Default::default() })
        .unwrap();
    assert_eq!(Manifest::read(&back).unwrap().classes, ["cat", "dog"]);
    let files = |dir: &Path| {
        let mut files: Vec<_> = records(dir, "train").into_values().map(|record| (record.0, record.4)).collect();
        files.sort();
        files
    };
    assert_eq!(files(&back), files(&dir));
    // RAW images are exported as PNGs.
    mnist(&temp.path("mnist-src"), false, false);
    convert("mnist", &temp.path("mnist-src"), &temp.path("mnist"), &ConvertOptions::default()).unwrap();
    export_webdataset(&temp.path("mnist"), &temp.path("mnist-tars"), 1, false).unwrap();
    let grey = temp.path("grey");
    convert("webdataset", &temp.path("mnist-tars"), &grey, &ConvertOptions { progress: false, ..Default::default() })
        .unwrap();
    assert_eq!(Manifest::read(&grey).unwrap().splits["train"].count, 53);
    assert!(verify(&grey, 1).unwrap().is_ok());
}
