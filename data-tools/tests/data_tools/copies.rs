//! Tests near copies across splits, which `verify` counts and lists in a file.

use crate::common::Temp;
use crate::common::pictures::*;
use data_tools::{ConvertOptions, NearCopy, convert, verify, write_duplicates};
use image::imageops::{FilterType, resize};
use image::{DynamicImage, ImageFormat};
use loaders::Dataset;
use loaders::shard::index_path;
use std::fs;
use support::mentions;

/// Returns a picture that is different for each `salt` and has more detail than `picture`.
fn scene(salt: u32, height: u32, width: u32) -> image::RgbImage {
    image::RgbImage::from_fn(width, height, |x, y| {
        let (x, y, s) = (x as f32 / width as f32, y as f32 / height as f32, salt as f32);
        let wave = |a: f32, b: f32| 128.0 + 60.0 * (a * x + s).sin() + 60.0 * (b * y + s * s).cos();
        image::Rgb([wave(9.0, 4.0 + s % 5.0), wave(3.0 + s % 7.0, 11.0), wave(6.0, 6.0)].map(|v| v as u8))
    })
}

fn file(salt: u32, size: (u32, u32), format: ImageFormat) -> Vec<u8> {
    encoded(DynamicImage::ImageRgb8(scene(salt, size.0, size.1)), format)
}

#[test]
fn resized_and_recompressed_copies_are_found() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    for i in 0..20 {
        write(&src.join(format!("train/a/{i:02}.jpg")), &file(i, (120, 160), ImageFormat::Jpeg));
    }
    // The same bytes, a smaller PNG, a larger JPEG of low quality, and a new picture.
    write(&src.join("val/a/0.jpg"), &file(3, (120, 160), ImageFormat::Jpeg));
    let small = resize(&scene(5, 120, 160), 60, 45, FilterType::Triangle);
    write(&src.join("val/a/1.png"), &encoded(DynamicImage::ImageRgb8(small), ImageFormat::Png));
    write(&src.join("test/a/2.jpg"), &file(8, (300, 400), ImageFormat::Jpeg));
    write(&src.join("test/a/3.jpg"), &file(40, (120, 160), ImageFormat::Jpeg));
    convert("folder", &src, &out, &ConvertOptions { shards: 3, progress: false, ..Default::default() }).unwrap();

    let report = verify(&out, 2).unwrap();
    assert!(report.is_ok(), "copies are no faults: {report}");
    let pairs: Vec<_> =
        report.copies.iter().map(|c: &NearCopy| (c.split.as_str(), c.of.as_str(), c.same_bytes)).collect();
    assert_eq!(pairs.len(), 3, "{pairs:?}");
    assert_eq!(pairs.iter().filter(|pair| **pair == ("validation", "train", true)).count(), 1);
    assert_eq!(pairs.iter().filter(|pair| **pair == ("validation", "train", false)).count(), 1);
    assert_eq!(pairs[2], ("test", "train", false));
    let text = report.to_string();
    let line = |start: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("`{start}` is not in: {text}"))
    };
    mentions(line("2 images of validation"), &["train", "1 of them"]);
    mentions(line("1 image of test"), &["train", "0 of them", "--duplicates FILE"]);
    mentions(line("val/a/0.jpg in validation"), &["train/a/03.jpg in train"]);
    let json = report.to_json();
    assert_eq!(json["copies"][1]["images"], 1);
    assert_eq!(json["copies"][1]["examples"][0], serde_json::json!(["test/a/2.jpg", "train/a/08.jpg"]));
    assert_eq!(report.copies, verify(&out, 1).unwrap().copies);

    let list = temp.path("copies.tsv");
    write_duplicates(&out, &report.copies, &list).unwrap();
    let text = fs::read_to_string(&list).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines.iter().all(|line| line.len() == 10), "{text}");
    let named =
        |line: &&Vec<&str>| (line[3] == "val/a/0.jpg").then_some((line[7], line[8])) == Some(("train/a/03.jpg", "yes"));
    assert_eq!(lines.iter().filter(named).count(), 1, "{text}");
    // `data extract` uses the same indices.
    let number: u64 = lines[3][1].parse().unwrap();
    let made = data_tools::extract(&out, "test", number, &temp.path("x.png")).unwrap();
    assert_eq!((made.sample, lines[3][3]), (number, "test/a/2.jpg"));
    // A shard that cannot be opened leaves only the columns of its own records empty.
    let train = Dataset::open(&out).unwrap().split("train").unwrap();
    for (gone, shard) in train.shards().iter().enumerate() {
        let index = index_path(&out.join(&shard.file));
        let content = fs::read(&index).unwrap();
        fs::remove_file(&index).unwrap();
        write_duplicates(&out, &report.copies, &list).unwrap();
        fs::write(&index, content).unwrap();
        let written = fs::read_to_string(&list).unwrap();
        assert_eq!(written.lines().count(), lines.len());
        for (line, before) in written.lines().zip(&lines).skip(1) {
            let mut expected = before.clone();
            if train.locate(before[5].parse().unwrap()).unwrap().0 == gone {
                expected[6..8].fill("");
            }
            assert_eq!(line.split('\t').collect::<Vec<_>>(), expected, "without {}", index.display());
        }
    }
}

#[test]
fn one_split_has_no_copies() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    for name in ["a/0.png", "a/1.png"] {
        write(&src.join(name), &file(1, (40, 40), ImageFormat::Png));
    }
    convert("folder", &src, &out, &ConvertOptions { progress: false, ..Default::default() }).unwrap();
    let report = verify(&out, 1).unwrap();
    assert!(report.copies.is_empty() && report.to_string().ends_with("all good"), "{report}");
}
