//! Tests TFRecords that other programs wrote. Compressed files are unpacked. Files of TensorFlow Datasets have their own
//! file names and record keys.

use crate::common::foreign::{Foreign, write_shard};
use crate::common::pictures::{jpeg, png, write};
use crate::common::{Temp, each_record, gz, index, names, zlib};
use data_tools::{ConvertOptions, convert, info, stats, verify};
use loaders::Limits;
use loaders::record::{append_record, masked_crc32c};
use std::fs;
use std::path::Path;
use support::mentions;

fn options() -> ConvertOptions {
    ConvertOptions { progress: false, ..ConvertOptions::default() }
}

/// Writes three shards of `train` and one of `test`. Returns their names and contents.
fn plain(dir: &Path) -> Vec<(String, Vec<u8>)> {
    fs::create_dir_all(dir).unwrap();
    let names = ["train-00000-of-00003", "train-00001-of-00003", "train-00002-of-00003", "test-00000-of-00001"];
    let shard = |(at, name): (usize, &&str)| {
        let records: Vec<Foreign> = (0..5 + at as i64).map(|i| Foreign::raw(i % 3)).collect();
        let path = dir.join(name);
        write_shard(&path, &records);
        (name.to_string(), fs::read(&path).unwrap())
    };
    names.iter().enumerate().map(shard).collect()
}

#[test]
fn compressed_shards_become_the_same_as_plain_ones() {
    let temp = Temp::new();
    let shards = plain(&temp.path("plain"));
    let src = temp.path("src");
    for (at, (name, bytes)) in shards.iter().enumerate() {
        // The shards are compressed with GZIP in one member, GZIP in two members and ZLIB. The last one is uncompressed.
        let packed = match at {
            0 => gz(bytes),
            1 => [gz(&bytes[..100]), gz(&bytes[100..])].concat(),
            2 => zlib(bytes),
            _ => bytes.clone(),
        };
        write(&src.join(if at == 0 { format!("{name}.tfrecord.gz") } else { name.clone() }), &packed);
    }
    let out = temp.path("out");
    let made = convert("tfrecord", &src, &out, &options()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.manifest.splits["test"].count), (18, 8));
    for (name, bytes) in &shards {
        assert_eq!(fs::read(out.join(format!("{name}.tfrecord"))).unwrap(), *bytes, "{name}");
    }
    assert!(verify(&out, 1).unwrap().is_ok());
    index(&temp.path("plain")).unwrap();
    let (a, b) = (info(&out).unwrap().to_json(), info(&temp.path("plain")).unwrap().to_json());
    assert_eq!((&a["mean"], &a["classes"]), (&b["mean"], &b["classes"]));
    let resized = ConvertOptions { resize: Some(8), ..options() };
    let error = convert("tfrecord", &src, &temp.path("x"), &resized).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["--resize ", "tfrecord"]);
}

/// A new `dataset.json` cannot describe images with more than one label, so the records need the file from their conversion.
#[test]
fn records_that_need_their_manifest_are_refused() {
    let temp = Temp::new();
    let (table, plain, packed) = (temp.path("src/table.csv"), temp.path("plain"), temp.path("packed"));
    write(&temp.path("src/0.png"), &png(6, 5, 1));
    write(&table, b"path,labels\n0.png,cat;dog\n");
    convert("csv", &table, &plain, &options()).unwrap();
    for name in names(&plain) {
        let bytes = fs::read(plain.join(&name)).unwrap();
        write(&packed.join(&name), &if name.ends_with(".tfrecord") { gz(&bytes) } else { bytes });
    }
    for src in [&plain, &packed] {
        let error = convert("tfrecord", src, &temp.path("out"), &options()).unwrap_err().to_string();
        mentions(
            &error,
            &["more than one label", "dataset.json of their conversion", "trireme data index", "gzip -dc"],
        );
        assert!(!error.contains("copy it"), "{error}");
    }
}

#[test]
fn indexing_says_how_to_unpack_compressed_shards() {
    let temp = Temp::new();
    let dir = temp.path("dir");
    let shards = plain(&dir);
    for (name, packed) in [("GZIP", gz(&shards[0].1)), ("ZLIB", zlib(&shards[0].1))] {
        fs::write(dir.join(&shards[0].0), packed).unwrap();
        let how = format!("{name}-compressed");
        mentions(index(&dir).unwrap_err(), &["train-00000-of-00003: ", &how, "convert tfrecord"]);
    }
}

#[test]
fn damaged_streams_name_shard_record_and_byte() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    let (name, bytes) = plain(&temp.path("plain")).remove(3);
    let refused = |packed: &[u8], parts: &[&str]| {
        write(&src.join(&name), packed);
        mentions(convert("tfrecord", &src, &out, &options()).unwrap_err(), parts);
        assert_eq!(names(&temp.path("")), ["plain", "src"]);
    };
    let whole = gz(&bytes);
    refused(&whole[..whole.len() - 6], &["test-00000-of-00001: ", "record 8 at byte", "cut short", "GZIP"]);
    let mut damaged = bytes.clone();
    let second = bytes.len() / 8;
    damaged[second + 30] ^= 1;
    refused(&zlib(&damaged), &["test-00000-of-00001: ", "record 1 at byte", "checksum", "payload", "ZLIB"]);
    refused(&gz(&bytes[..second + 20]), &["record 1 at byte", "cut short"]);
    refused(&gz(b"nothing of the kind"), &["record 0 at byte 0", "checksum", "length"]);
    // A claimed record of 2^40 bytes must not allocate memory.
    let length = (1u64 << 40).to_le_bytes();
    let huge = [&length[..], &masked_crc32c(&length).to_le_bytes(), &[0; 64]].concat();
    refused(&gz(&huge), &["record 0 at byte 0", "--limit-memory"]);
}

/// Returns a tf.Example with the keys of TensorFlow Datasets.
fn tfds(image: &[u8], label: u8) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend(bytes);
        out
    };
    let entry = |key: &str, feature: &[u8]| field(1, &[field(1, key.as_bytes()), field(2, feature)].concat());
    let label = field(3, &field(1, &[label]));
    field(1, &[entry("image", &field(1, &field(1, image))), entry("label", &label)].concat())
}

#[test]
fn data_sets_of_tensorflow_datasets() {
    let temp = Temp::new();
    let dir = temp.path("cats/1.0.0");
    fs::create_dir_all(&dir).unwrap();
    for (split, count) in [("train", 6u8), ("test", 2)] {
        let path = dir.join(format!("cats-{split}.tfrecord-00000-of-00001"));
        let mut records = Vec::new();
        for i in 0..count {
            // No image has class 0. Labels from 1 must still match the list.
            append_record(&mut records, |out| out.extend(tfds(&jpeg(20, 24, i.into()), 1 + i % 2)));
        }
        fs::write(path, records).unwrap();
    }
    write(&dir.join("label.labels.txt"), "\u{feff}cat\ndog\nfox\n".as_bytes());
    let out = temp.path("out");
    let made = convert("tfrecord", &dir, &out, &options()).unwrap();
    assert_eq!((made.manifest.classes.join(" "), made.manifest.label_offset), ("cat dog fox".into(), 0));
    let stored = each_record(&out, "train", |_, example, label| (example.encoded.to_vec(), label));
    assert_eq!(stored[1], (jpeg(20, 24, 1), 2));
    assert!(verify(&out, 1).unwrap().is_ok());
    assert_eq!(stats(&out, "train", 1).unwrap().count, 6);
    // Indexing in place works too.
    assert_eq!(index(&dir).unwrap().manifest.classes, ["cat", "dog", "fox"]);
    assert!(verify(&dir, 1).unwrap().is_ok());
    write(&temp.path("few/label.labels.txt"), b"cat\n");
    fs::copy(dir.join("cats-test.tfrecord-00000-of-00001"), temp.path("few/cats-test.tfrecord-00000-of-00001"))
        .unwrap();
    mentions(index(&temp.path("few")).unwrap_err(), &["label is 2", "label.labels.txt", "1 names"]);
}

#[test]
fn limits_hold_for_single_records() {
    let temp = Temp::new();
    let shards = plain(&temp.path("plain"));
    write(&temp.path("src/test-00000-of-00001"), &gz(&shards[3].1));
    let small = ConvertOptions { limits: Limits::with_memory(100), ..options() };
    let error = convert("tfrecord", &temp.path("src"), &temp.path("out"), &small).unwrap_err();
    mentions(error, &["record 0 at byte 0", "--limit-memory"]);
}
