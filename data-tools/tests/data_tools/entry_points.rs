//! Tests `convert --entry-points`: the records, and how `info`, `verify` and `reshard` handle them.

use crate::common::pictures::*;
use crate::common::{Temp, each_record};
use data_tools::{ConvertOptions, ReshapeOptions, ShardFault, convert, info, merge, reshard, verify};
use loaders::record::{append_record, read_record};
use loaders::{Example, Manifest, example, shard};
use std::fs;
use std::path::{Path, PathBuf};
use support::mentions;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

fn options(entry_points: bool) -> ConvertOptions {
    ConvertOptions { shards: 2, progress: false, entry_points, ..Default::default() }
}

/// Returns a noisy JPEG.
fn photo(height: usize, width: usize, salt: usize, progressive: bool) -> Vec<u8> {
    let noise = |at: usize| ((at + salt) as u32).wrapping_mul(2_654_435_761) >> 25;
    let pixels: Vec<u8> = (0..3 * height * width).map(|at| noise(at) as u8).collect();
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(90).unwrap();
    compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
    compressor.set_progressive(progressive).unwrap();
    let image = Image { pixels: &pixels[..], width, pitch: 3 * width, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

/// Writes 5 JPEGs that can have entry points, and a progressive JPEG, a PNG and a tiny JPEG, which cannot.
fn source(temp: &Temp) -> PathBuf {
    let src = temp.path("src");
    for i in 0..5 {
        write(&src.join(format!("cat/{i}.jpg")), &photo(120 + 7 * i, 161, i, false));
    }
    write(&src.join("dog/progressive.jpg"), &photo(120, 160, 9, true));
    write(&src.join("dog/picture.png"), &png(40, 50, 1));
    write(&src.join("dog/small.jpg"), &jpeg(16, 16, 1));
    src
}

/// Returns name and entry points of each image in `train`.
fn entry_points(dir: &Path) -> Vec<(String, Vec<u8>)> {
    each_record(dir, "train", |_, example, _| (example.filename.to_string(), example.entry_points.to_vec()))
}

#[test]
fn jpegs_keep_their_bytes_and_get_entry_points() {
    let temp = Temp::new();
    let src = source(&temp);
    let (plain, with) = (temp.path("plain"), temp.path("with"));
    convert("folder", &src, &plain, &options(false)).unwrap();
    convert("folder", &src, &with, &options(true)).unwrap();
    assert_eq!(records(&plain, "train"), records(&with, "train"));
    for (name, points) in entry_points(&with) {
        assert_eq!(points.is_empty(), name.contains("dog"), "{name}");
    }
    assert!(entry_points(&plain).iter().all(|(_, points)| points.is_empty()));
    assert_eq!(Manifest::read(&plain).unwrap().splits["train"].entry_points, None);
    assert_eq!(Manifest::read(&with).unwrap().splits["train"].entry_points, Some(5));
    let about = info(&with).unwrap();
    mentions(&about, &["; 5 have entry"]);
    assert_eq!(about.to_json()["splits"]["train"]["entry_points"], 5);
    assert!(!info(&plain).unwrap().to_string().contains("entry points"));
    assert!(verify(&with, 0).unwrap().is_ok());
    // The number of threads does not matter.
    convert("folder", &src, &temp.path("one"), &ConvertOptions { jobs: 1, ..options(true) }).unwrap();
    for file in ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "dataset.json"] {
        assert_eq!(fs::read(temp.path("one").join(file)).unwrap(), fs::read(with.join(file)).unwrap(), "{file}");
    }
}

/// JPEGs that the conversion encodes have entry points too.
#[test]
fn resized_images_have_entry_points() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..3).for_each(|i| write(&src.join(format!("cat/{i}.jpg")), &photo(300, 400, i, i == 1)));
    convert("folder", &src, &temp.path("out"), &ConvertOptions { resize: Some(150), ..options(true) }).unwrap();
    assert_eq!(Manifest::read(&temp.path("out")).unwrap().splits["train"].entry_points, Some(3));
    mentions(info(&temp.path("out")).unwrap(), &["; all have entry"]);
    assert!(verify(&temp.path("out"), 0).unwrap().is_ok());
}

#[test]
fn copied_records_keep_entry_points() {
    let temp = Temp::new();
    let dir = temp.path("data");
    convert("folder", &source(&temp), &dir, &options(true)).unwrap();
    let reshaping = ReshapeOptions { shards: 3, progress: false, ..ReshapeOptions::default() };
    let made = reshard(&dir, &temp.path("a"), false, &reshaping).unwrap();
    assert_eq!(made.manifest.splits["train"].entry_points, Some(5));
    assert_eq!(entry_points(&temp.path("a")), entry_points(&dir));
    let made = merge(&[&temp.path("a"), &dir], &temp.path("b"), &reshaping).unwrap();
    assert_eq!(made.manifest.splits["train"].entry_points, Some(10));
    assert!(verify(&temp.path("b"), 0).unwrap().is_ok());
}

/// Rewrites all records of `train` with `change`.
fn rewrite(dir: &Path, change: impl Fn(usize, &[u8]) -> Vec<u8>) {
    let path = dir.join("train-00000-of-00001.tfrecord");
    let bytes = fs::read(&path).unwrap();
    let (mut offset, mut number, mut records, mut entries) = (0, 0, Vec::new(), Vec::new());
    while let Ok((old, next)) = read_record(&bytes, offset) {
        let example = example::parse(old).unwrap();
        let points = change(number, example.entry_points);
        let example = Example { entry_points: &points, ..example };
        entries.push((records.len() as u64, append_record(&mut records, |out| example::encode(&example, out))));
        (offset, number) = (next, number + 1);
    }
    fs::write(&path, records).unwrap();
    shard::write_index(&path, &entries).unwrap();
}

/// Entry points may belong to a different file, be truncated or have a changed byte. `verify` reports each fault with
/// its record.
#[test]
fn verify_names_wrong_entry_points() {
    let temp = Temp::new();
    let (src, dir) = (temp.path("src"), temp.path("data"));
    (0..4).for_each(|i| write(&src.join(format!("cat/{i}.jpg")), &photo(120, 161, i, false)));
    convert("folder", &src, &dir, &ConvertOptions { shards: 1, ..options(true) }).unwrap();
    let points: Vec<Vec<u8>> = entry_points(&dir).into_iter().map(|(_, points)| points).collect();
    rewrite(&dir, |number, own| match number {
        0 => points[3].clone(),
        1 => own[..own.len() - 1].to_vec(),
        2 => own.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 40)).collect(),
        _ => own.to_vec(),
    });
    let report = verify(&dir, 1).unwrap();
    // Ignore the fault of the shard itself, which says that its size has changed.
    let bad: Vec<&ShardFault> = report.bad.iter().filter(|bad| bad.record.is_some()).collect();
    assert_eq!(bad.iter().map(|bad| bad.record).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)], "{report}");
    bad.iter().for_each(|bad| mentions(&bad.what, &["`image/jpeg/entry_points`", "damaged"]));
}
