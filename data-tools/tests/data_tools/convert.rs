//! Tests the result of a conversion: the samples in shuffled order, with identical bytes for any number of threads.

use crate::common::*;
use data_tools::{ConvertOptions, convert, info, verify};
use loaders::record::masked_crc32c;
use loaders::{Dataset, Manifest};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::mentions;

fn options(shards: usize, jobs: usize) -> ConvertOptions {
    ConvertOptions { shards, jobs, ..ConvertOptions::default() }
}

/// Returns a checksum of the names and contents of all files.
fn digest(dir: &Path) -> u32 {
    let mut all = Vec::new();
    for (name, bytes) in contents(dir) {
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(&bytes);
    }
    masked_crc32c(&all)
}

/// The time spent must not exceed the time available to the threads.
#[test]
fn the_time_of_the_threads_is_reported() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    for jobs in [1, 3] {
        let out = temp.path(&format!("out{jobs}"));
        let json = convert("mnist", &temp.path("src"), &out, &options(4, jobs)).unwrap().to_json();
        let spent = |part: &str| json["thread_seconds"][part].as_f64().unwrap();
        assert!(["reading", "decoding", "writing", "syncing"].into_iter().all(|part| spent(part) > 0.0), "{json}");
        let (busy, elapsed) =
            (spent("reading") + spent("decoding") + spent("writing"), json["seconds"].as_f64().unwrap());
        assert!(busy <= jobs as f64 * elapsed && spent("syncing") <= elapsed, "{json}");
    }
}

#[test]
fn jobs_do_not_change_a_byte() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    for jobs in [1, 2, 5] {
        let out = temp.path(&format!("out{jobs}"));
        convert("mnist", &temp.path("src"), &out, &options(7, jobs)).unwrap();
    }
    let one = contents(&temp.path("out1"));
    assert_eq!(one.len(), 2 * (7 + 1) + 1);
    assert_eq!(one, contents(&temp.path("out2")));
    assert_eq!(one, contents(&temp.path("out5")));
}

/// Different versions of the program must write identical data sets.
#[test]
fn golden_bytes() {
    let temp = Temp::new();
    mnist(&temp.path("mnist"), false, false);
    convert("mnist", &temp.path("mnist"), &temp.path("m"), &options(4, 0)).unwrap();
    write_files(&temp.path("cifar"), &cifar10_files());
    convert("cifar10", &temp.path("cifar"), &temp.path("c"), &options(3, 0)).unwrap();
    let got = [digest(&temp.path("m")), digest(&temp.path("c"))];
    assert_eq!(got, [0x4777_a1c2, 0x3005_0e85], "{got:#010x?}");
}

#[test]
fn mnist_comes_back_sample_by_sample() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    let out = temp.path("new/parents/out");
    let made = convert("mnist", &temp.path("src"), &out, &options(16, 0)).unwrap();
    mentions(&made, &["train 53 in 16 shards", "test 11 in 4 shards", "10 classes"]);
    assert_eq!(made.to_json()["splits"]["train"]["count"], 53);

    assert_eq!(Manifest::read(&out).unwrap().classes[3], "3");
    for (name, prefix, count) in [("train", "train", 53u32), ("test", "t10k", 11)] {
        let source = idx_images(count, 5, 4);
        let order = each_record(&out, name, |_, example, label| {
            let (file, index) = example.filename.split_once('#').unwrap();
            assert_eq!(file, format!("{prefix}-images-idx3-ubyte"));
            let index: usize = index.parse().unwrap();
            assert_eq!((example.height, example.width, example.channels), (5, 4, 1));
            assert_eq!(example.encoded, &source[16 + 20 * index..][..20]);
            assert_eq!(label, u32::from(labels(count)[index]));
            assert_eq!(example.text, label.to_string());
            index
        });
        assert_eq!(order.len(), count as usize);
        let distinct: BTreeSet<usize> = order.iter().copied().collect();
        assert_eq!(distinct, (0..count as usize).collect());
        assert!(!order.is_sorted(), "not shuffled");
    }
    assert!(verify(&out, 2).unwrap().is_ok());
}

#[test]
fn mean_and_std_are_measured_on_the_train_split() {
    let temp = Temp::new();
    write_files(&temp.path("src"), &cifar10_files());
    let made = convert("cifar10", &temp.path("src"), &temp.path("out"), &options(2, 0)).unwrap();
    let files = cifar10_files();
    for c in 0..3 {
        let values: Vec<f64> = files[..5]
            .iter()
            .flat_map(|(_, data)| data.chunks(3073))
            .flat_map(|record| &record[1 + 1024 * c..1 + 1024 * (c + 1)])
            .map(|&b| f64::from(b) / 255.0)
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((made.manifest.mean[c] - mean).abs() < 1e-12);
        assert!((made.manifest.std[c] - var.sqrt()).abs() < 1e-12);
    }
}

#[test]
fn every_naming_and_packing_of_mnist_gives_the_same_bytes() {
    let temp = Temp::new();
    let mut digests = BTreeSet::new();
    for (i, (dot, gzip)) in [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate() {
        let (src, out) = (temp.path(&format!("src{i}")), temp.path(&format!("out{i}")));
        mnist(&src, dot, gzip);
        convert("mnist", &src, &out, &options(2, 0)).unwrap();
        digests.insert(digest(&out));
    }
    assert_eq!(digests.len(), 1);
}

#[test]
fn fashion_has_its_own_names() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, true);
    let out = temp.path("out");
    let made = convert("fashion-mnist", &temp.path("src"), &out, &options(2, 0)).unwrap();
    assert_eq!(made.manifest.classes[0], "T-shirt/top");
    assert_eq!(made.manifest.classes[9], "Ankle boot");
    let checked = each_record(&out, "test", |_, example, label| {
        assert_eq!(example.text, made.manifest.classes[label as usize]);
    });
    assert_eq!(checked.len(), 11);
}

#[test]
fn cifar10_comes_alike_from_folder_and_archives() {
    let temp = Temp::new();
    let mut files = cifar10_files();
    write_files(&temp.path("src"), &files);
    write_files(&temp.path("outer/cifar-10-batches-bin"), &files);
    // The members of an archive can have any order, and it may contain other files.
    files.reverse();
    files.push(("readme.html".into(), b"<html>".to_vec()));
    let archive = tar("cifar-10-batches-bin", &files);
    fs::write(temp.path("c.tar"), &archive).unwrap();
    fs::write(temp.path("c.tar.gz"), gz(&archive)).unwrap();
    let mut digests = BTreeSet::new();
    for (i, src) in ["src", "outer", "c.tar", "c.tar.gz"].iter().enumerate() {
        let out = temp.path(&format!("out{i}"));
        convert("cifar10", &temp.path(src), &out, &options(4, 0)).unwrap();
        digests.insert(digest(&out));
    }
    assert_eq!(digests.len(), 1);

    assert_eq!(Manifest::read(&temp.path("out0")).unwrap().classes[9], "truck");
    let files = cifar10_files();
    let checked = each_record(&temp.path("out0"), "train", |_, example, label| {
        let (file, index) = example.filename.split_once('#').unwrap();
        let index: usize = index.parse().unwrap();
        let (_, data) = files.iter().find(|(name, _)| name == file).unwrap();
        let record = &data[3073 * index..][..3073];
        assert_eq!(label, u32::from(record[0]));
        for (p, pixel) in example.encoded.chunks(3).enumerate() {
            assert_eq!(pixel, [record[1 + p], record[1025 + p], record[2049 + p]]);
        }
    });
    assert_eq!(checked.len(), 17);
}

#[test]
fn cifar100_takes_the_fine_label_and_names_from_the_file() {
    let temp = Temp::new();
    let files = vec![
        ("train.bin".to_string(), cifar_batch(130, 2, 100, 0)),
        ("test.bin".to_string(), cifar_batch(20, 2, 100, 5)),
    ];
    write_files(&temp.path("src"), &files);
    let made = convert("cifar100", &temp.path("src"), &temp.path("a"), &options(2, 0)).unwrap();
    assert_eq!(made.manifest.classes[99], "worm");
    assert_eq!(info(&temp.path("a")).unwrap().splits[0].count, 130);

    let own: Vec<String> = (0..100).map(|i| format!("name {i}")).collect();
    // A byte order mark, as some editors write, is not part of a name.
    fs::write(temp.path("src/fine_label_names.txt"), format!("\u{feff}{}\n\n", own.join("\n"))).unwrap();
    convert("cifar100", &temp.path("src"), &temp.path("b"), &options(2, 0)).unwrap();
    each_record(&temp.path("b"), "train", |_, example, label| {
        let index: u32 = example.filename.split_once('#').unwrap().1.parse().unwrap();
        assert_eq!(label, index % 100);
        assert_eq!(example.text, format!("name {label}"));
    });
}

#[test]
fn the_seed_changes_the_order_and_nothing_else() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    for seed in [0, 1] {
        let options = ConvertOptions { seed, ..options(2, 0) };
        let out = temp.path(&format!("out{seed}"));
        convert("mnist", &temp.path("src"), &out, &options).unwrap();
    }
    let [mut a, mut b] = ["out0", "out1"].map(|out| file_names(&temp.path(out), "train"));
    assert_ne!(a, b);
    a.sort();
    b.sort();
    assert_eq!(a, b);
}

#[test]
fn more_shards_than_samples_gives_one_sample_each_and_says_so() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    let out = temp.path("out");
    let made = convert("mnist", &temp.path("src"), &out, &options(200, 0)).unwrap();
    assert_eq!(made.manifest.splits["train"].shards.len(), 53);
    assert_eq!(made.manifest.splits["test"].shards.len(), 11);
    mentions(&made, &["200 shards"]);
    assert!(out.join("test-00010-of-00011.tfrecord.idx").is_file());
    Dataset::open(&out).unwrap().split("test").unwrap();
}
