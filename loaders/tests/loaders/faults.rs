//! Bad data: each problem is an error that names the file, the record, what was expected and found, and what to try.

use std::fs;

use crate::common::{self, SPEC, TestData, assert_contains, edit, folder, image_file, raw};
use loaders::example::{self, Example, Format};
use loaders::{Dataset, EvalOrder, ImageSpec, Loader, Options, shard};

#[test]
fn missing_and_empty_folders() {
    let dir = folder();
    let absent = dir.join("absent");
    let message = Dataset::open(&absent).unwrap_err().to_string();
    assert_contains(&message, &["absent", "there is no such folder", "trireme data convert"]);
    let message = Dataset::open(&dir).unwrap_err().to_string();
    assert_contains(&message, &["the folder is empty", "trireme data convert"]);
    fs::write(dir.join("x.tfrecord"), b"").unwrap();
    let message = Dataset::open(&dir).unwrap_err().to_string();
    assert_contains(&message, &["it has no dataset.json", "trireme data index"]);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn unknown_split() {
    let data = TestData::noise(4, 1, SPEC);
    let dataset = Dataset::open(&data.dir).unwrap();
    let message = dataset.split("test").unwrap_err().to_string();
    assert_contains(&message, &["has no split `test`; it has `train`"]);
}

#[test]
fn truncated_shard() {
    let data = TestData::noise(6, 2, SPEC);
    let whole = fs::metadata(data.shard(1)).unwrap().len();
    edit(&data.shard(1), |bytes| bytes.truncate(bytes.len() - 7));
    let expected = format!("dataset.json says {whole}, found {}", whole - 7);
    assert_contains(&data.complaint(), &["train-00001-of-00002.tfrecord", &expected, "cut short"]);
}

#[test]
fn missing_shard() {
    let data = TestData::noise(6, 2, SPEC);
    fs::remove_file(data.shard(0)).unwrap();
    assert_contains(&data.complaint(), &["cannot open", "train-00000-of-00002.tfrecord"]);
}

#[test]
fn missing_index() {
    let data = TestData::noise(6, 2, SPEC);
    fs::remove_file(shard::index_path(&data.shard(1))).unwrap();
    let cure = format!("run `trireme data index {}`", data.dir.display());
    assert_contains(&data.complaint(), &["train-00001-of-00002.tfrecord.idx is missing", &cure]);
}

#[test]
fn index_that_contradicts_the_shard() {
    let data = TestData::noise(6, 1, SPEC);
    let index = shard::index_path(&data.shard(0));
    let good = fs::read_to_string(&index).unwrap();

    let short: String = good.lines().take(5).map(|line| format!("{line}\n")).collect();
    fs::write(&index, short).unwrap();
    assert_contains(&data.complaint(), &[".idx: it covers", "trireme data index"]);

    fs::write(&index, good.replacen("0 ", "4 ", 1)).unwrap();
    assert_contains(&data.complaint(), &[".idx: line 1: expected offset 0, got 4"]);

    // This index covers the file, but has a wrong boundary between the first two records.
    let sizes: Vec<u64> = good.lines().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    let mut entries = vec![(0, sizes[0] + 1), (sizes[0] + 1, sizes[1] - 1)];
    let mut offset = sizes[0] + sizes[1];
    for &size in &sizes[2..] {
        entries.push((offset, size));
        offset += size;
    }
    shard::write_index(&data.shard(0), &entries).unwrap();
    let (wrong, right) = (format!("the index says {} bytes", sizes[0] + 1), sizes[0].to_string());
    assert_contains(&data.complaint(), &["record 0 at byte 0", &wrong, &right]);

    fs::write(&index, good.replace('\n', " 1\n")).unwrap();
    assert_contains(&data.complaint(), &["line 1: expected `offset size`"]);
    fs::write(&index, good).unwrap();
    assert_eq!(data.split().unwrap().len(), 6);
}

#[test]
fn scanning_finds_what_was_written() {
    let data = TestData::noise(5, 1, SPEC);
    let path = data.shard(0);
    let written = fs::read_to_string(shard::index_path(&path)).unwrap();
    let entries = shard::scan_index(&path).unwrap();
    assert_eq!(entries.len(), 5);
    shard::write_index(&path, &entries).unwrap();
    assert_eq!(fs::read_to_string(shard::index_path(&path)).unwrap(), written);

    let (offset, _) = entries[3];
    edit(&path, |bytes| bytes[offset as usize + 40] ^= 1);
    let message = shard::scan_index(&path).unwrap_err().to_string();
    assert_contains(&message, &[&format!("record 3 at byte {offset}"), "checksum"]);
}

#[test]
fn manifest_that_contradicts_itself_or_the_shards() {
    let data = TestData::noise(6, 2, SPEC);
    let spoil = |change: &dyn Fn(&mut loaders::Manifest)| {
        let mut manifest = data.manifest.clone();
        change(&mut manifest);
        let text = serde_json::to_string(&manifest).unwrap();
        fs::write(data.dir.join("dataset.json"), text).unwrap();
        data.complaint()
    };
    let message = spoil(&|m| m.splits.get_mut("train").unwrap().count = 7);
    assert_contains(&message, &["dataset.json", "split `train`: `count` is 7", "sum to 6"]);
    let message = spoil(&|m| {
        let split = m.splits.get_mut("train").unwrap();
        split.count = 7;
        split.shards[1].count = 4;
    });
    assert_contains(&message, &["train-00001-of-00002.tfrecord: records: dataset.json says 4, found 3"]);
    let message = spoil(&|m| m.splits.get_mut("train").unwrap().shards[0].bytes += 1);
    assert_contains(&message, &["train-00000-of-00002.tfrecord: bytes: dataset.json says"]);
    let message = spoil(&|m| m.splits.get_mut("train").unwrap().shards[0].file = "../x".into());
    assert_contains(&message, &["expected the name of a file", "got \"../x\""]);
    for name in ["../train", "/tmp/train", "a/b", "..", ""] {
        let named = |m: &mut loaders::Manifest| {
            let split = m.splits.get("train").unwrap().clone();
            m.splits.insert(name.into(), split);
        };
        assert_contains(&spoil(&named), &["must be a valid file name", name]);
    }
    assert_contains(&spoil(&|m| m.version = 4), &["`version`: expected 1 to 3, got 4"]);
    assert_contains(&spoil(&|m| m.version = 2), &["`version` is 2, `multi_label` false and the images are uint8: expected version 1"]);
    assert_contains(&spoil(&|m| m.classes.clear()), &["`classes` is empty"]);
    let message = spoil(&|m| m.mean.clear());
    assert_contains(&message, &["`mean` has 0 values but `std` has 3"]);

    fs::write(data.dir.join("dataset.json"), "{\"version\": 1,").unwrap();
    assert_contains(&data.complaint(), &["dataset.json: EOF while parsing"]);
    fs::write(data.dir.join("dataset.json"), "{\"version\": 1}").unwrap();
    assert_contains(&data.complaint(), &["dataset.json: missing field `classes`"]);
}

#[test]
fn unknown_keys_of_the_manifest_are_left_alone() {
    let data = TestData::noise(6, 2, SPEC);
    let path = data.dir.join("dataset.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"licence\": \"MIT\",", 1)).unwrap();
    assert_eq!(data.split().unwrap().len(), 6);
}

#[test]
fn flipped_byte() {
    let data = TestData::noise(9, 3, SPEC);
    let path = data.shard(2);
    let (offset, _) = shard::scan_index(&path).unwrap()[1];
    for (at, what) in [(3, "checksum of the length"), (60, "checksum of the payload")] {
        edit(&path, |bytes| bytes[offset as usize + at] ^= 0x40);
        let place = format!("train-00002-of-00003.tfrecord, record 1 at byte {offset}");
        assert_contains(&data.complaint(), &[&place, what, "trireme data verify"]);
        edit(&path, |bytes| bytes[offset as usize + at] ^= 0x40);
    }
}

#[test]
fn label_out_of_range() {
    let mut payloads: Vec<_> = (0..3).map(|id| raw(id, &[0; 192], SPEC)).collect();
    let mut bad = Vec::new();
    let mut example = example::parse(&payloads[1]).unwrap();
    example.label = 10;
    example::encode(&example, &mut bad);
    payloads[1] = bad;
    let mut data = TestData::of(&payloads, 1, 3);
    assert_contains(&data.complaint(), &["record 1 at byte", "label 10", "expected 0 to 9", "label_offset"]);
    // With an offset of 1, a stored 10 is class 9 and a stored 0 is invalid.
    data.manifest.label_offset = 1;
    data.manifest.write(&data.dir).unwrap();
    let split = data.split().unwrap();
    assert_eq!(split.record(1, &mut Vec::new()).unwrap().1, 9);
    let message = split.record(0, &mut Vec::new()).unwrap_err().to_string();
    assert_contains(&message, &["record 0", "label 0", "minus label_offset 1: -1"]);
}

#[test]
fn sample_that_does_not_exist() {
    let data = TestData::noise(3, 1, SPEC);
    let message = data.split().unwrap().record(3, &mut Vec::new()).unwrap_err().to_string();
    assert_contains(&message, &["split `train` has 3 samples", "no sample 3"]);
}

#[test]
fn payload_that_is_no_example() {
    let data = TestData::of(&[vec![0xff; 30]], 1, 3);
    assert_contains(&data.complaint(), &["record 0 at byte 0: not a tf.Example"]);
}

#[test]
fn empty_shards_and_splits_are_allowed() {
    let data = TestData::noise(2, 4, SPEC);
    let split = data.split().unwrap();
    assert_eq!(split.len(), 2);
    for id in 0..2 {
        assert_eq!(split.record(id, &mut Vec::new()).unwrap().1, common::label(id));
    }
    let none = TestData::of(&[], 1, 3);
    assert!(none.split().unwrap().is_empty());
}

/// Returns the loader's error for these payloads with a pipeline for `SPEC`.
fn loader_complaint(payloads: &[Vec<u8>]) -> String {
    let data = TestData::of(payloads, 1, 3);
    let order = Box::new(EvalOrder::new(payloads.len() as u64, 8, 0, 1));
    let pipeline = data.pipeline(&["normalize"], SPEC);
    let mut loader = Loader::start(data.shared(), pipeline, order, Options::default()).unwrap();
    loader.next().unwrap_err().to_string()
}

#[test]
fn image_of_another_size() {
    let good = raw(0, &[0; 192], SPEC);
    let other = raw(1, &[0; 9 * 8 * 3], ImageSpec::new(9, 8, 3));
    assert_contains(
        &loader_complaint(&[good.clone(), other]),
        &["tfrecord, record 1 at byte", "image of 9x8x3", "expected 8x8x3", "resize"],
    );
    let short = raw(1, &[0; 191], SPEC);
    assert_contains(
        &loader_complaint(&[good, short]),
        &["record 1", "RAW image of 8x8x3: expected 192 bytes (above 0), got 191"],
    );
}

#[test]
fn image_that_cannot_be_decoded() {
    for (encoded, part) in [
        (&b"neither"[..], "neither a PNG nor a JPEG file: it starts with"),
        (b"\x89PNG\r\n\x1a\n and no more", "cannot decode the PNG image"),
        (b"\xff\xd8\xff and no more", "cannot decode the JPEG image"),
    ] {
        let mut payload = Vec::new();
        let example = Example { height: 8, width: 8, channels: 3, ..image_file(encoded, Format::Jpeg) };
        example::encode(&example, &mut payload);
        assert_contains(&loader_complaint(&[payload]), &["record 0 at byte 0", part]);
    }
}

#[test]
fn sizes_that_cannot_be() {
    let huge = ImageSpec::new(u32::MAX, u32::MAX, u32::MAX);
    for (spec, part) in [(ImageSpec::new(0, 0, 0), "`image/height` is missing or 0"), (huge, "RAW image of")] {
        let data = TestData::of(&[raw(0, &[], spec)], 1, 3);
        let message = data.split().unwrap().images().unwrap_err().to_string();
        assert_contains(&message, &["record 0 at byte 0: ", part]);
    }
}
