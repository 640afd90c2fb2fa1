//! Tests TFRecords that other programs wrote: ImageNet's names and keys, PNG and JPEG, labels from 1.

use crate::common::foreign::{Foreign, write_shard};
use crate::common::pictures::write;
use crate::common::tiff::strip;
use crate::common::*;
use data_tools::{Error, convert, info, stats, verify};
use image::{ExtendedColorType, ImageEncoder};
use loaders::shard::index_path;
use loaders::{Format, Manifest};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::mentions;

/// Returns an encoded image of 6 x 5 pixels, grey or RGB, and its pixels, which depend on `salt`.
fn picture(format: Format, channels: usize, salt: usize) -> (Vec<u8>, Vec<u8>) {
    let pixels: Vec<u8> = (0..30 * channels).map(|i| byte(i + 100 * salt)).collect();
    let kind = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let mut file = Vec::new();
    match format {
        Format::Jpeg => {
            image::codecs::jpeg::JpegEncoder::new_with_quality(&mut file, 90).write_image(&pixels, 5, 6, kind).unwrap()
        }
        _ => image::codecs::png::PngEncoder::new(&mut file).write_image(&pixels, 5, 6, kind).unwrap(),
    }
    (file, pixels)
}

fn photo(format: Format, channels: usize, salt: usize, label: i64, text: &'static str) -> Foreign {
    Foreign { encoded: picture(format, channels, salt).0, format, shape: [6, 5, 3], label, text }
}

fn imagenet(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let first = [photo(Format::Jpeg, 3, 0, 2, "goldfish"), photo(Format::Jpeg, 1, 1, 1, "")];
    let second =
        [photo(Format::Png, 3, 2, 4, ""), photo(Format::Jpeg, 3, 3, 1, "tench"), photo(Format::Jpeg, 3, 5, 5, "")];
    write_shard(&dir.join("train-00000-of-00002"), &first);
    write_shard(&dir.join("train-00001-of-00002"), &second);
    let val = [photo(Format::Jpeg, 3, 4, 5, "ray")];
    write_shard(&dir.join("validation-00000-of-00001"), &val);
    fs::write(dir.join("README"), "not a shard").unwrap();
}

#[test]
fn imagenet_shards_become_a_data_set() {
    let temp = Temp::new();
    let dir = temp.path("imagenet");
    imagenet(&dir);
    let indexed = index(&dir).unwrap();
    assert!(indexed.made_manifest);
    assert_eq!((indexed.shards, indexed.records), (3, 6));
    mentions(&indexed, &["5 classes", "start at 1"]);
    assert_eq!(indexed.manifest.classes, ["tench", "goldfish", "3", "4", "ray"]);
    assert_eq!(indexed.manifest.label_offset, 1);
    assert_eq!(indexed.manifest, Manifest::read(&dir).unwrap());

    assert_eq!(each_record(&dir, "train", |_, _, label| label), [1, 0, 3, 0, 4]);
    assert_eq!(file_names(&dir, "validation").len(), 1);
    assert!(verify(&dir, 0).unwrap().is_ok());
    mentions(info(&dir).unwrap(), &["JPEG 6x5x3"]);
    let measured = stats(&dir, "train", 2).unwrap();
    assert_eq!(measured.mean, indexed.manifest.mean);
    assert_eq!(measured.mean.len(), 3);

    // A second run writes a missing index again and keeps the manifest.
    let before = contents(&dir);
    fs::remove_file(index_path(&dir.join("train-00001-of-00002"))).unwrap();
    assert!(!index(&dir).unwrap().made_manifest);
    assert_eq!(contents(&dir), before);
}

/// If all indexes are correct, nothing is written, so that data sets on read-only file systems can be used. A wrong
/// index is replaced.
#[test]
fn indexes_that_are_right_stay() {
    let temp = Temp::new();
    let dir = temp.path("d");
    imagenet(&dir);
    assert_eq!(index(&dir).unwrap().written, 3);
    let path = index_path(&dir.join("train-00001-of-00002"));
    let inode = || fs::metadata(&path).unwrap().ino();
    let (before, text) = (inode(), fs::read_to_string(&path).unwrap());
    let again = index(&dir).unwrap();
    assert_eq!((again.shards, again.written, inode()), (3, 0, before));
    mentions(&again, &["all indexes"]);
    // The same content with the line endings of Windows.
    fs::write(&path, text.trim_end().replace('\n', "\r\n")).unwrap();
    assert_eq!((index(&dir).unwrap().written, inode()), (0, before));
    // Other blanks between the numbers.
    fs::write(&path, text.replace(' ', "\t ")).unwrap();
    assert_eq!((index(&dir).unwrap().written, inode()), (0, before));
    assert!(verify(&dir, 1).unwrap().is_ok());
    let (first, second) = text.split_once('\n').unwrap();
    for wrong in ["", first, second, "0 20\n", &text.repeat(2), &text.replacen(' ', " 1", 1)] {
        fs::write(&path, wrong).unwrap();
        assert_eq!(index(&dir).unwrap().written, 1, "{wrong:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

/// Only the conversion can describe images that are not grey or RGB with bytes. Their indexes can still be written again.
#[test]
fn images_with_bands_need_their_manifest() {
    let temp = Temp::new();
    for (file, found) in [
        (strip(2, 3, 5, 16, 1, &[1; 60], &[]), "5 bands of uint16"),
        (strip(2, 3, 4, 8, 1, &[1; 24], &[]), "4 bands of uint8"),
    ] {
        let dir = temp.path(found);
        write(&temp.path("src/a/0.tif"), &file);
        convert("folder", &temp.path("src"), &dir, &options()).unwrap();
        let before = contents(&dir);
        fs::remove_file(index_path(&dir.join("train-00000-of-00001.tfrecord"))).unwrap();
        assert_eq!(index(&dir).unwrap().written, 1);
        assert_eq!(contents(&dir), before);
        fs::remove_file(dir.join("dataset.json")).unwrap();
        mentions(index(&dir).unwrap_err(), &[found, "needs the dataset.json"]);
    }
}

/// PNG is lossless, so the sums of the decoded pixels are known. Grey counts as RGB, whatever the record says, and also
/// if it is stored raw.
#[test]
fn moments_of_decoded_images_are_exact() {
    for (stated, is_raw) in [(3, false), (1, false), (1, true)] {
        let temp = Temp::new();
        fs::create_dir_all(temp.path("d")).unwrap();
        let mut records = [photo(Format::Png, 3, 1, 0, "x"), photo(Format::Png, 1, 2, 0, "x")];
        records[1].shape[2] = stated;
        if is_raw {
            (records[1].format, records[1].encoded) = (Format::Raw, picture(Format::Png, 1, 2).1);
        }
        write_shard(&temp.path("d/train.tfrecord"), &records);
        let made = index(&temp.path("d")).unwrap().manifest;
        let (_, rgb) = picture(Format::Png, 3, 1);
        let (_, grey) = picture(Format::Png, 1, 2);
        for c in 0..3 {
            let values: Vec<f64> = rgb.iter().skip(c).step_by(3).chain(&grey).map(|&b| f64::from(b) / 255.0).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
            assert!((made.mean[c] - mean).abs() < 1e-12 && (made.std[c] - var.sqrt()).abs() < 1e-12);
        }
    }
}

#[test]
fn label_offset_follows_the_lowest_label() {
    for (labels, offset, classes) in [(&[0, 2][..], 0, 3), (&[1, 2, 3], 1, 3), (&[2, 4], 0, 5)] {
        let temp = Temp::new();
        fs::create_dir_all(temp.path("d")).unwrap();
        let records: Vec<Foreign> = labels.iter().map(|&l| Foreign::raw(l)).collect();
        write_shard(&temp.path("d/train.tfrecord"), &records);
        let made = index(&temp.path("d")).unwrap().manifest;
        assert_eq!((made.label_offset, made.classes.len()), (offset, classes));
        assert_eq!(made.classes[0], offset.to_string());
    }
}

/// Indexes a folder of shards that `prepare` changed. This must fail and write nothing.
#[track_caller]
fn refused(prepare: impl Fn(&Path), parts: &[&str]) -> Error {
    let temp = Temp::new();
    let dir = temp.path("d");
    fs::create_dir_all(&dir).unwrap();
    prepare(&dir);
    let before = names(&dir);
    let error = index(&dir).unwrap_err();
    mentions(&error, parts);
    assert_eq!(names(&dir), before);
    error
}

/// Like [`refused`], but the error must also be about the first record of the shard `file`.
#[track_caller]
fn first_record_refused(prepare: impl Fn(&Path), file: &str, parts: &[&str]) {
    let error = refused(prepare, parts);
    assert!(
        matches!(&error, Error::Record { shard, record: 0, offset: 0, .. } if shard.ends_with(file)),
        "{file}: {error}"
    );
}

#[test]
fn what_cannot_be_indexed() {
    let one = |label| [Foreign::raw(label)];
    refused(|_| (), &["no shards", "train-00000-of-00016.tfrecord"]);
    refused(|d| write_shard(&d.join("train-00001-of-00002"), &one(0)), &["split train", "shard 0 of 2"]);
    refused(|d| write_shard(&d.join("train.tfrecord"), &[]), &["no records"]);
    let shard = "t.tfrecord";
    first_record_refused(|d| write_shard(&d.join(shard), &one(-2)), shard, &["label -2"]);
    first_record_refused(|d| write_shard(&d.join(shard), &one(i64::MAX)), shard, &["label 9223372036854775807"]);
    first_record_refused(|d| fs::write(d.join(shard), [7; 100]).unwrap(), shard, &["checksum", "length"]);
    refused(|d| fs::create_dir(d.join(shard)).unwrap(), &[shard, "a folder"]);
    first_record_refused(
        |d| {
            imagenet(d);
            let path = d.join("validation-00000-of-00001");
            let mut bytes = fs::read(&path).unwrap();
            bytes[60] ^= 1;
            fs::write(&path, bytes).unwrap();
        },
        "validation-00000-of-00001",
        &["checksum", "payload"],
    );
    let nowhere = Path::new("/nowhere/at/all");
    let error = index(nowhere).unwrap_err();
    assert!(matches!(&error, Error::Missing { path, .. } if path == nowhere), "{error}");
}

#[test]
fn a_manifest_that_disagrees_is_named() {
    let temp = Temp::new();
    let dir = temp.path("d");
    imagenet(&dir);
    index(&dir).unwrap();
    write_shard(&dir.join("validation-00000-of-00001"), &[Foreign::raw(1), Foreign::raw(2)]);
    let error = index(&dir).unwrap_err();
    assert!(matches!(&error, Error::Input { path, .. } if path.ends_with("dataset.json")), "{error}");
    mentions(error, &["1 records", "validation-00000-of-00001", "has 2 "]);
}
