//! Tests that verification reports each fault with shard, record and offset, and continues after it.

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::*;
use data_tools::{ConvertOptions, Error, ShardFault, VerifyReport, convert, info, stats, verify};
use loaders::shard::index_path;
use loaders::{Format, Manifest};
use std::fs;
use std::path::{Path, PathBuf};
use support::mentions;

/// Writes MNIST in 2 + 1 shards. Returns its path and the path of the first train shard.
fn dataset(temp: &Temp) -> (PathBuf, PathBuf) {
    let out = temp.path("data");
    mnist(&temp.path("src"), false, false);
    let options = ConvertOptions { shards: 2, ..ConvertOptions::default() };
    convert("mnist", &temp.path("src"), &out, &options).unwrap();
    let shard = out.join("train-00000-of-00002.tfrecord");
    (out, shard)
}

/// Returns offset and size of each record from the index.
fn entries(shard: &Path) -> Vec<(usize, usize)> {
    let text = fs::read_to_string(index_path(shard)).unwrap();
    let entry = |line: &str| {
        let (offset, size) = line.split_once(' ').unwrap();
        (offset.parse().unwrap(), size.parse().unwrap())
    };
    text.lines().map(entry).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Returns the only fault of a report.
fn only(report: &VerifyReport) -> &ShardFault {
    assert_eq!(report.bad.len(), 1, "{report}");
    assert!(!report.is_ok());
    &report.bad[0]
}

/// Asserts that a fault in the report contains all `parts`.
#[track_caller]
fn has_fault(report: &VerifyReport, parts: &[&str]) {
    let texts: Vec<String> = report.bad.iter().map(ToString::to_string).collect();
    let is_listed = texts.iter().any(|text| parts.iter().all(|part| text.contains(part)));
    assert!(is_listed, "no fault contains {parts:?}: {report}");
}

/// After measuring all images, `measured` is removed from `dataset.json`. If there are bad records, it becomes the
/// number of good ones.
#[test]
fn stats_write_says_how_many_were_measured() {
    let temp = Temp::new();
    let dir = temp.path("d");
    let mut manifest = write_dataset(&dir, &[Foreign::raw(0), Foreign::raw(1), Foreign::raw(7)], &["a", "b"]);
    for (classes, expected) in [(2, Some(2)), (8, None)] {
        manifest.classes = (0..classes).map(|class| class.to_string()).collect();
        manifest.splits.get_mut("train").unwrap().measured = Some(1);
        manifest.write(&dir).unwrap();
        stats(&dir, "train", 1).unwrap().write().unwrap();
        assert_eq!(loaders::Manifest::read(&dir).unwrap().splits["train"].measured, expected);
    }
}

#[test]
fn a_good_set_has_no_faults() {
    let temp = Temp::new();
    let (out, _) = dataset(&temp);
    for jobs in [0, 1, 3] {
        let report = verify(&out, jobs).unwrap();
        assert!(report.is_ok(), "{report}");
        assert_eq!((report.checked, report.shards), (64, 3));
        assert!(report.to_string().contains("all good"), "{report}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let (offset, size) = entries(&shard)[1];
    let good = fs::read(&shard).unwrap();
    for at in offset..offset + size {
        flip(&shard, at);
        let report = verify(&out, 1).unwrap();
        let bad = only(&report);
        assert_eq!((bad.record, bad.offset), (Some(1), Some(offset as u64)));
        mentions(&bad.what, &["checksum"]);
        assert_eq!(report.checked, 64, "byte {at}: the records behind it count too");
        fs::write(&shard, &good).unwrap();
    }
}

#[test]
fn it_goes_on_past_faults_in_several_shards() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let other = out.join("test-00000-of-00001.tfrecord");
    let at: Vec<usize> = [0, 7, 25].iter().map(|&i| entries(&shard)[i].0).collect();
    flip(&shard, at[0] + 2); // Length.
    flip(&shard, at[1] + 40); // Payload.
    flip(&shard, at[2] + 9); // Checksum of the length.
    let last = entries(&other)[10].0;
    flip(&other, last + 30);
    let report = verify(&out, 4).unwrap();
    let found: Vec<_> = report.bad.iter().map(|b| (b.shard.as_str(), b.record.unwrap())).collect();
    let (test, train) = ("test-00000-of-00001.tfrecord", "train-00000-of-00002.tfrecord");
    assert_eq!(found, [(test, 10), (train, 0), (train, 7), (train, 25)]);
    assert_eq!(report.to_json()["bad"][3]["offset"], at[2]);
    has_fault(&report, &[train, "record 7 ", &format!("byte {}: ", at[1]), "checksum", "payload"]);
}

#[test]
fn a_shard_cut_short() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let bytes = fs::read(&shard).unwrap();
    let (offset, size) = entries(&shard)[20];
    for keep in [offset + size - 1, offset + 5] {
        fs::write(&shard, &bytes[..keep]).unwrap();
        let report = verify(&out, 0).unwrap();
        has_fault(&report, &["dataset.json", &format!(" {} bytes", bytes.len()), &format!(" {keep}")]);
        has_fault(&report, &["record 20 ", &format!("byte {offset}: "), "cut short"]);
        has_fault(&report, &["dataset.json", "26 records", "found 21"]);
    }
    fs::write(&shard, &bytes[..offset]).unwrap(); // Between two records, so only the counts differ.
    let report = verify(&out, 0).unwrap();
    has_fault(&report, &["dataset.json", "26 records", "found 20"]);
    has_fault(&report, &["index", "from record 20 "]);
}

#[test]
fn without_an_index_a_lost_record_ends_the_shard() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let (offset, _) = entries(&shard)[3];
    fs::remove_file(index_path(&shard)).unwrap();
    flip(&shard, offset);
    let report = verify(&out, 0).unwrap();
    has_fault(&report, &["index", "missing", "`trireme data index`"]);
    has_fault(&report, &["record 3 ", &format!("byte {offset}: "), "checksum"]);
    let left = fs::metadata(&shard).unwrap().len() - offset as u64;
    has_fault(&report, &["record 3 ", &format!("{left} bytes"), "not be checked"]);
    has_fault(&report, &["dataset.json", "26 records", "found 4"]);
}

#[test]
fn wrong_indexes_and_missing_shards() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let index = index_path(&shard);
    let good = fs::read_to_string(&index).unwrap();
    for (text, parts) in [
        (good.replacen("0 ", "1 ", 1), &["index", "from record 0 "][..]),
        (good.replacen('\n', " 3\n", 1), &["index", "line 1 ", "`offset size`"]),
        (format!("{good}9 9\n"), &["index", "from record 26 ", "9 bytes at 9", "no more records"]),
    ] {
        fs::write(&index, text).unwrap();
        mentions(&only(&verify(&out, 1).unwrap()).what, parts);
    }
    fs::remove_file(&shard).unwrap();
    let report = verify(&out, 1).unwrap();
    mentions(&only(&report).what, &["shard is missing"]);
    assert_eq!(report.checked, 27 + 11);
}

#[test]
fn wrong_entries_of_the_manifest_are_reported() {
    let temp = Temp::new();
    let (out, _) = dataset(&temp);
    let good = Manifest::read(&out).unwrap();
    let report = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = good.clone();
        change(&mut manifest);
        manifest.write(&out).unwrap();
        verify(&out, 1).unwrap()
    };
    assert!(report(&|_| {}).is_ok());
    let train = good.splits["train"].count as usize;
    let [height, width] = good.splits["train"].size.unwrap();
    for size in [[0, 0], [height + 1, width], [height, width - 1], [u32::MAX, u32::MAX]] {
        let report = report(&|m| m.splits.get_mut("train").unwrap().size = Some(size));
        assert_eq!(report.bad.len(), train, "{report}");
        mentions(&report.bad[0].what, &["all images", &format!(" {}x{} ", size[0], size[1])]);
    }
    let sizes = [[height, width], [height + 3, width]];
    let between = |m: &mut Manifest, sizes| {
        let split = m.splits.get_mut("train").unwrap();
        (split.size, split.sizes) = (None, Some(sizes));
    };
    assert!(report(&|m| between(m, sizes)).is_ok());
    assert_eq!(report(&|m| between(m, [[height + 1, width], [height + 3, width]])).bad.len(), train);
    let doubled = report(&|m| m.classes[1] = m.classes[0].clone());
    mentions(&only(&doubled).what, &["classes 0 and 1 ", &format!("`{}`", good.classes[0])]);
    let nameless = report(&|m| m.classes[1].clear());
    mentions(&only(&nameless).what, &["class 1 ", "no name"]);
    let empty = report(&|m| m.splits.clear());
    mentions(&only(&empty).what, &["no splits"]);
}

#[test]
fn a_manifest_that_lists_a_shard_twice_or_is_not_there() {
    let temp = Temp::new();
    let (out, _) = dataset(&temp);
    let mut manifest = Manifest::read(&out).unwrap();
    let train = manifest.splits.get_mut("train").unwrap();
    train.shards[1] = train.shards[0].clone();
    train.count = 52;
    manifest.write(&out).unwrap();
    let report = verify(&out, 1).unwrap();
    mentions(&only(&report).what, &["more than once"]);

    for result in [
        verify(&temp.path("src"), 0).map(drop),
        info(&temp.path("nowhere")).map(drop),
        stats(&temp.path("src"), "train", 0).map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Loaders(loaders::Error::NoDataset { .. })), "{error}");
    }
}

/// Writes a data set with these records in a split `train` and the classes `a`, `b` and `c`.
fn foreign(dir: &Path, records: &[Foreign]) {
    write_dataset(dir, records, &["a", "b", "c"]);
}

#[test]
fn records_that_are_whole_but_wrong() {
    let temp = Temp::new();
    let wrong = |format, encoded: &[u8], shape| Foreign { encoded: encoded.to_vec(), format, shape, ..Foreign::raw(1) };
    let huge = u32::MAX;
    let records = [
        Foreign::raw(0),
        Foreign::raw(3),
        Foreign::raw(-1),
        Foreign::raw(i64::MIN),
        wrong(Format::Raw, &[1, 2, 3, 4, 5], [2, 3, 1]),
        wrong(Format::Raw, &[], [0, 3, 1]),
        wrong(Format::Raw, &[1], [huge, huge, huge]),
        wrong(Format::Png, b"no image", [2, 3, 1]),
        wrong(Format::Jpeg, &[0xff, 0xd8, 0xff, 0xd9], [2, 3, 1]),
        Foreign::raw(2),
    ];
    foreign(&temp.path("d"), &records);
    let report = verify(&temp.path("d"), 0).unwrap();
    let at: Vec<u64> = report.bad.iter().map(|b| b.record.unwrap()).collect();
    assert_eq!(at, [1, 2, 3, 4, 5, 6, 7, 8], "{report}");
    mentions(&report.bad[0].what, &["label 3 ", "0 to 2"]);
    mentions(&report.bad[3].what, &["got 5"]);
    mentions(&report.bad[4].what, &["`image/height`"]);

    let measured = stats(&temp.path("d"), "train", 0).unwrap();
    assert_eq!((measured.count, measured.skipped), (2, 8), "{measured}");
    assert!(measured.bad.iter().zip(&report.bad).all(|(a, b)| (a.record, a.offset) == (b.record, b.offset)));
    let counts: Vec<u64> = measured.classes.iter().map(|(_, n)| *n).collect();
    assert_eq!(counts, [1, 0, 1]);
    let json = measured.to_json();
    mentions(&measured, &["8 bad records", ":\n    train.tfrecord, record 1 "]);
    assert_eq!((&json["skipped"], &json["bad"][7]["record"]), (&8.into(), &8.into()));
}

/// The image key is replaced by a different one of the same length. The record is intact but has no image.
#[test]
fn a_record_without_an_image() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let (offset, size) = entries(&shard)[4];
    let mut bytes = fs::read(&shard).unwrap();
    let record = &mut bytes[offset..offset + size];
    let key = b"image/encoded";
    let at = record.windows(key.len()).position(|w| w == key).unwrap();
    record[at..at + key.len()].copy_from_slice(b"image/encodes");
    let crc = loaders::record::masked_crc32c(&record[12..size - 4]).to_le_bytes();
    record[size - 4..].copy_from_slice(&crc);
    fs::write(&shard, bytes).unwrap();
    let report = verify(&out, 1).unwrap();
    assert_eq!(only(&report).record, Some(4), "{report}");
    mentions(&only(&report).what, &["no `image/encoded`"]);
    assert_eq!(report.checked, 64);
}

#[test]
fn stats_agree_with_the_conversion_and_go_into_the_manifest() {
    let temp = Temp::new();
    let (out, _) = dataset(&temp);
    let made = Manifest::read(&out).unwrap();
    for jobs in [1, 2, 5] {
        let s = stats(&out, "train", jobs).unwrap();
        assert_eq!((&s.mean, &s.std), (&made.mean, &made.std));
        let counts: Vec<u64> = s.classes.iter().map(|(_, n)| *n).collect();
        let expected: Vec<u64> = (0..10u8).map(|l| labels(53).iter().filter(|&&x| x == l).count() as u64).collect();
        assert_eq!(counts, expected);
    }
    let mut blank = made.clone();
    blank.mean.clear();
    blank.std.clear();
    blank.write(&out).unwrap();
    assert!(info(&out).unwrap().to_string().contains("not measured"));
    stats(&out, "train", 0).unwrap().write().unwrap();
    assert_eq!(Manifest::read(&out).unwrap(), made);

    let test = stats(&out, "test", 0).unwrap();
    assert_ne!(test.mean, made.mean);
    mentions(test.write().unwrap_err(), &["measure `train`"]);
    let error = stats(&out, "dev", 0).unwrap_err();
    assert!(
        matches!(&error, Error::Loaders(loaders::Error::UnknownSplit { name, known, .. })
            if name == "dev" && known == "`test`, `train`"),
        "{error}"
    );
}

#[test]
fn stats_name_the_records_behind_one_of_unknown_length() {
    let temp = Temp::new();
    let dir = temp.path("d");
    foreign(&dir, &[Foreign::raw(0), Foreign::raw(1), Foreign::raw(2), Foreign::raw(0)]);
    let shard = dir.join("train.tfrecord");
    let second = support::images::offset_of(&shard, 1);
    let mut bytes = fs::read(&shard).unwrap();
    bytes[second as usize + 8] ^= 1;
    fs::write(&shard, bytes).unwrap();
    // The index has the position of the next record.
    let s = stats(&dir, "train", 1).unwrap();
    assert_eq!((s.count, s.skipped, s.bad.len()), (3, 1, 1), "{s}");
    assert_eq!((s.bad[0].record, s.bad[0].offset), (Some(1), Some(second)));
    // Without the index, the following records cannot be found and are counted as skipped.
    fs::remove_file(dir.join("train.tfrecord.idx")).unwrap();
    let s = stats(&dir, "train", 1).unwrap();
    assert_eq!((s.count, s.skipped), (1, 3), "{s}");
    mentions(&s.bad[0].what, &["2 records after"]);
}

#[test]
fn stats_of_various_sizes_and_of_grey_among_colours() {
    let temp = Temp::new();
    let image = |shape: [u32; 3], value| Foreign {
        encoded: vec![value; shape.iter().product::<u32>() as usize],
        shape,
        ..Foreign::raw(1)
    };
    foreign(&temp.path("d"), &[image([4, 6, 1], 255), image([2, 2, 3], 0), image([4, 5, 3], 0), image([1, 9, 2], 7)]);
    let s = stats(&temp.path("d"), "train", 1).unwrap();
    // 24 of 48 pixels are white. The image with two channels is invalid.
    assert_eq!((&s.mean, &s.std), (&vec![0.5; 3], &vec![0.5; 3]), "{s}");
    assert_eq!((s.count, s.skipped), (3, 1), "{s}");
    mentions(&s.bad[0].what, &["2 channels", "have 3"]);
    let (height, width) = (s.sizes.height().unwrap(), s.sizes.width().unwrap());
    assert_eq!([height.min, height.median, height.max, width.min, width.median, width.max], [2, 4, 4, 2, 5, 6]);
    assert!(s.to_string().contains("width   2 to 6, median 5"), "{s}");
    assert_eq!(s.to_json()["sizes"]["height"]["median"], 4);
}

#[test]
fn stats_of_nothing_good_are_not_written() {
    let temp = Temp::new();
    foreign(&temp.path("d"), &[Foreign::raw(7)]);
    let s = stats(&temp.path("d"), "train", 0).unwrap();
    mentions(&s.bad[0].what, &["label 7 ", "0 to 2"]);
    mentions(s.write().unwrap_err(), &["no image", "`train`"]);
}

#[test]
fn info_sums_up() {
    let temp = Temp::new();
    let (out, shard) = dataset(&temp);
    let summary = info(&out).unwrap();
    let parts = [
        "64 images, 10 classes",
        "train  53 images",
        "53 images in 2 shards",
        "test   11 images",
        "11 images in 1 shard,",
        "RAW 5x4x1",
        "same size",
        "classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n",
        "of pixel/255, train",
    ];
    mentions(&summary, &parts);
    let json = summary.to_json();
    assert_eq!(json["splits"]["test"]["first"]["height"], 5);
    assert_eq!(json["classes"].as_array().unwrap().len(), 10);
    fs::write(&shard, b"short").unwrap();
    let error = info(&out).unwrap_err();
    assert!(matches!(&error, Error::Record { shard: s, record: 0, offset: 0, .. } if *s == shard), "{error}");
    mentions(&error, &["cut short"]);
}
