//! Tests Parquet tables and RecordIO files written by other programs, and messages about invalid ones.

use crate::common::pictures::{Image, file, images, pixels, write};
use crate::common::{self, Temp, options, skipping};
use data_tools::{ConvertOptions, convert, verify};
use loaders::Limits;
use std::fs;
use std::path::Path;
use support::mentions;

const CLASSES: [&str; 3] = ["cat", "dog", "fox"];
const NUMBERS: [&str; 3] = ["0", "1", "2"];

#[track_caller]
fn refused(kind: &str, src: &Path, parts: &[&str]) {
    common::refused(kind, src, &options(), parts);
}

fn expected(name: &str, classes: [&str; 3], count: usize) -> Vec<Image> {
    let image = |i: usize| Image { name: format!("{name}#{i}"), class: classes[i % 3].to_string(), pixels: pixels(i) };
    (0..count).map(image).collect()
}

#[test]
fn tables_of_hugging_face() {
    let temp = Temp::new();
    // A compressed file with class names in its metadata and three row groups.
    convert("parquet", &file("snappy.parquet"), &temp.path("a"), &options()).unwrap();
    assert_eq!(images(&temp.path("a"), "train"), expected("train", CLASSES, 7));
    assert!(verify(&temp.path("a"), 1).unwrap().is_ok());
    // A folder with a file per split. The files are uncompressed and have no class names.
    let src = temp.path("src");
    write(&src.join("data/train-00000-of-00002.parquet"), &fs::read(file("plain.parquet")).unwrap());
    write(&src.join("data/train-00001-of-00002.parquet"), &fs::read(file("plain.parquet")).unwrap());
    write(&src.join("data/test-00000-of-00001.parquet"), &fs::read(file("plain.parquet")).unwrap());
    for jobs in [1, 4] {
        let out = temp.path(&format!("b{jobs}"));
        convert("parquet", &src, &out, &ConvertOptions { jobs, ..options() }).unwrap();
        assert_eq!(images(&out, "test"), expected("test", NUMBERS, 7));
        let train = images(&out, "train");
        assert_eq!(train.len(), 14);
        let second = train.iter().find(|image| image.name == "train#9").unwrap();
        assert_eq!((second.class.as_str(), &second.pixels), ("2", &pixels(2)));
    }
    let bytes = |jobs: usize| fs::read(temp.path(&format!("b{jobs}/train-00000-of-00002.tfrecord"))).unwrap();
    assert_eq!(bytes(1), bytes(4));
}

#[test]
fn bad_tables_are_named() {
    let temp = Temp::new();
    refused("parquet", &file("other.parquet"), &["other.parquet: ", "`image.bytes`", "picture.bytes", "rename"]);
    refused("parquet", &file("paths.parquet"), &["paths.parquet/row 1: ", "no bytes", "not paths"]);
    refused("parquet", &file("zstd.parquet"), &["zstd.parquet: ", "row group 0 ", "ZSTD", "compression='snappy'"]);
    let whole = fs::read(file("snappy.parquet")).unwrap();
    let path = temp.path("x.parquet");
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    refused("parquet", &path, &["x.parquet: ", "footer", "cut short", "fetch"]);
    fs::write(&path, b"no table").unwrap();
    refused("parquet", &path, &["not a Parquet file"]);
    let small = ConvertOptions { limits: Limits::with_memory(0), ..options() };
    let error = convert("parquet", &file("bomb.parquet"), &temp.path("out"), &small).unwrap_err();
    mentions(error, &["bomb.parquet", "--limit-memory"]);
    let drawn = ConvertOptions { validation_fraction: Some(0.5), ..options() };
    let error = convert("parquet", &file("snappy.parquet"), &temp.path("out"), &drawn).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["trireme data split"]);
}

/// A changed byte or a truncation must not cause a panic. Most of them are detected as errors.
#[test]
fn damaged_tables_and_records_are_errors() {
    let temp = Temp::new();
    for (kind, name) in [("parquet", "snappy.parquet"), ("recordio", "train.rec")] {
        let whole = fs::read(file(name)).unwrap();
        let path = temp.path(name);
        for at in (0..whole.len()).step_by(if kind == "parquet" { 101 } else { 23 }) {
            let mut bad = whole.clone();
            bad[at] ^= 0x41;
            for bytes in [&bad, &whole[..at]] {
                fs::write(&path, bytes).unwrap();
                if let Err(error) = convert(kind, &path, &temp.path("out"), &options()) {
                    assert!(!error.to_string().contains("panicked"), "{kind}, byte {at}: {error}");
                }
                let _ = fs::remove_dir_all(temp.path("out"));
                let _ = fs::remove_dir_all(temp.path("out.partial"));
            }
        }
    }
}

#[test]
fn records_of_mxnet() {
    let temp = Temp::new();
    convert("recordio", &file("train.rec"), &temp.path("a"), &options()).unwrap();
    assert_eq!(images(&temp.path("a"), "train"), expected("train", NUMBERS, 7));
    assert!(verify(&temp.path("a"), 1).unwrap().is_ok());
    let src = temp.path("src");
    write(&src.join("set_train.rec"), &fs::read(file("train.rec")).unwrap());
    write(&src.join("set_val.rec"), &fs::read(file("train.rec")).unwrap());
    write(&src.join("classes.txt"), b"cat\ndog\nfox\n");
    convert("recordio", &src, &temp.path("b"), &options()).unwrap();
    assert_eq!(images(&temp.path("b"), "validation"), expected("set_val", CLASSES, 7));
    // The list is also found next to a single file.
    convert("recordio", &src.join("set_train.rec"), &temp.path("c"), &options()).unwrap();
    assert_eq!(images(&temp.path("c"), "train"), expected("set_train", CLASSES, 7));
}

#[test]
fn bad_records_name_number_byte_and_cure() {
    let temp = Temp::new();
    let path = temp.path("x.rec");
    let whole = fs::read(file("train.rec")).unwrap();
    let with = |bytes: &[u8], parts: &[&str]| {
        fs::write(&path, bytes).unwrap();
        refused("recordio", &path, parts);
    };
    // Record 5 is at byte 1112 to 1364. Its parts begin at 1112, 1188 and 1196.
    with(&whole[..1196], &["x.rec: ", "record 5 at byte 1112: ", "cut short", "ends at byte 1196", "fetch"]);
    with(&whole[..1300], &["record 5 at byte 1112: ", "cut short", "part at byte 1196", "166 bytes", "104 bytes"]);
    with(&whole[..1115], &["record 5 at byte 1112: ", "cut short", " 8 bytes", " 3 bytes"]);
    let without: Vec<u8> = [&whole[..1196], &whole[1364..]].concat();
    with(&without, &["record 5 at byte 1112: ", "last part", "at byte 1196"]);
    with(&whole[508..], &["record 0 at byte 0: ", "later part"]);
    with(&whole[4..], &["record 0 at byte 0: ", "0xced7230a", "not RecordIO"]);
    // Changes the label of record 0.
    let label = |value: f32| {
        let mut bytes = whole.clone();
        bytes[12..16].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    with(&label(0.5), &["record 0 at byte 0: ", "label is 0.5"]);
    with(&label(f32::NAN), &["record 0 at byte 0: ", "label is NaN"]);
    let mut many = whole.clone();
    many[8] = 5;
    with(&many, &["record 0 at byte 0: ", "5 labels"]);
    with(b"", &["x.rec: ", "empty"]);
    // A damaged image is skipped if requested.
    let mut bad = whole.clone();
    bad[300] ^= 1;
    fs::write(&path, &bad).unwrap();
    refused("recordio", &path, &["x.rec/x#1", "PNG"]);
    assert_eq!(convert("recordio", &path, &temp.path("out"), &skipping()).unwrap().skipped.len(), 1);
}
