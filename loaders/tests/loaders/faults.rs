//! Bad data: each problem is an error that names the file, the record, what was expected and found, and what to try.

use std::fs;
use std::path::Path;

use crate::common::{self, SPEC, TestData, assert_mentions, edit, folder, raw, record_fault};
use loaders::example::{self, Example, ExampleFault, Format};
use loaders::record::RecordFault;
use loaders::{Dataset, Error, EvalOrder, Fault, ImageSpec, Options, shard};

#[test]
fn missing_and_empty_folders_are_refused_with_advice() {
    let dir = folder();
    let absent = dir.join("absent");
    let refused = |folder: &Path, reason: &str, command: &str| {
        let error = Dataset::open(folder).unwrap_err();
        assert!(
            matches!(&error, Error::NoDataset { dir, problem } if dir == folder && problem.contains(reason)),
            "{error}"
        );
        assert_mentions(&error.to_string(), &[command]);
    };
    refused(&absent, "no such folder", "trireme data convert");
    assert!(!Dataset::open(&absent).unwrap_err().to_string().contains("data index"), "a folder that does not exist");
    refused(&dir, "empty", "trireme data convert");
    fs::write(dir.join("x.tfrecord"), b"").unwrap();
    refused(&dir, "dataset.json", "trireme data index");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_unknown_split_is_refused_with_the_known_ones() {
    let data = TestData::noise(4, 1, SPEC);
    let dataset = Dataset::open(&data.dir).unwrap();
    let error = dataset.split("test").unwrap_err();
    assert!(
        matches!(&error, Error::UnknownSplit { name, known, .. } if name == "test" && known == "`train`"),
        "{error}"
    );
}

#[test]
fn a_truncated_shard_is_reported() {
    let data = TestData::noise(6, 2, SPEC);
    let whole = fs::metadata(data.shard(1)).unwrap().len();
    edit(&data.shard(1), |bytes| bytes.truncate(bytes.len() - 7));
    let error = data.complaint();
    assert!(
        matches!(&error, Error::Shard { path, what: "bytes", expected, got }
            if (path, *expected, *got) == (&data.shard(1), whole, whole - 7)),
        "{error}"
    );
}

#[test]
fn a_missing_shard_is_reported() {
    let data = TestData::noise(6, 2, SPEC);
    fs::remove_file(data.shard(0)).unwrap();
    let error = data.complaint();
    assert!(matches!(&error, Error::Io { action: "open", path, .. } if *path == data.shard(0)), "{error}");
}

#[test]
fn a_missing_index_is_reported() {
    let data = TestData::noise(6, 2, SPEC);
    let missing = shard::index_path(&data.shard(1));
    fs::remove_file(&missing).unwrap();
    let error = data.complaint();
    assert!(matches!(&error, Error::NoIndex { index, dir } if (index, dir) == (&missing, &data.dir)), "{error}");
    assert_mentions(&error.to_string(), &[&format!("trireme data index {}", data.dir.display())]);
}

#[test]
fn an_index_that_contradicts_the_shard_is_reported() {
    let data = TestData::noise(6, 1, SPEC);
    let index = shard::index_path(&data.shard(0));
    let good = fs::read_to_string(&index).unwrap();
    // Returns the problem with the index.
    let problem = || match data.complaint() {
        Error::Index { index: path, dir, problem } if (&path, &dir) == (&index, &data.dir) => problem,
        other => panic!("not the error of the index: {other}"),
    };
    let sizes: Vec<u64> = good.lines().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    let whole: u64 = sizes.iter().sum();

    let short: String = good.lines().take(5).map(|line| format!("{line}\n")).collect();
    fs::write(&index, short).unwrap();
    assert_mentions(&problem(), &[&(whole - sizes[5]).to_string(), &whole.to_string()]);

    fs::write(&index, good.replacen("0 ", "4 ", 1)).unwrap();
    assert_mentions(&problem(), &["line 1", "offset 0", "4"]);

    // This index covers the file, but has a wrong boundary between the first two records.
    let mut entries = vec![(0, sizes[0] + 1), (sizes[0] + 1, sizes[1] - 1)];
    let mut offset = sizes[0] + sizes[1];
    for &size in &sizes[2..] {
        entries.push((offset, size));
        offset += size;
    }
    shard::write_index(&data.shard(0), &entries).unwrap();
    assert_mentions(&problem(), &["record 0", "byte 0", &(sizes[0] + 1).to_string(), &sizes[0].to_string()]);

    fs::write(&index, good.replace('\n', " 1\n")).unwrap();
    assert_mentions(&problem(), &["line 1", "offset size", &format!("0 {} 1", sizes[0])]);
    fs::write(&index, good).unwrap();
    assert_eq!(data.split().unwrap().len(), 6);
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
    let path = data.dir.join("dataset.json");
    // Checks that the manifest itself is wrong, and that the problem mentions these parts.
    let refused = |error: Error, parts: &[&str]| match error {
        Error::Manifest { path: found, problem } if found == path => assert_mentions(&problem, parts),
        other => panic!("not the error of the manifest: {other}"),
    };
    refused(spoil(&|m| m.splits.get_mut("train").unwrap().count = 7), &["split `train`", "`count`", "7", "6"]);
    let error = spoil(&|m| {
        let split = m.splits.get_mut("train").unwrap();
        split.count = 7;
        split.shards[1].count = 4;
    });
    assert!(
        matches!(&error, Error::Shard { path, what: "records", expected: 4, got: 3 } if *path == data.shard(1)),
        "{error}"
    );
    let error = spoil(&|m| m.splits.get_mut("train").unwrap().shards[0].bytes += 1);
    assert!(
        matches!(&error, Error::Shard { path, what: "bytes", expected, got }
            if *path == data.shard(0) && *expected == got + 1),
        "{error}"
    );
    let error = spoil(&|m| m.splits.get_mut("train").unwrap().shards[0].file = "../x".into());
    refused(error, &["split `train`", "name of a file", "\"../x\""]);
    for name in ["../train", "/tmp/train", "a/b", "..", ""] {
        let named = |m: &mut loaders::Manifest| {
            let split = m.splits.get("train").unwrap().clone();
            m.splits.insert(name.into(), split);
        };
        refused(spoil(&named), &["name of a split", &format!("\"{name}\"")]);
    }
    refused(spoil(&|m| m.version = 5), &["`version`", "1 to 4", "5"]);
    refused(spoil(&|m| m.version = 2), &["`version` is 2", "expected 1", "one label"]);
    refused(spoil(&|m| m.classes.clear()), &["`classes`", "empty"]);
    let age = |mean| loaders::dataset::Target { mean, ..loaders::dataset::Target::new("age") };
    refused(spoil(&|m| m.targets = vec![age(1.0)]), &["`targets`", "numbers", "`classes`", "missing"]);
    let numbers = |version, targets: Vec<loaders::dataset::Target>| {
        spoil(&move |m: &mut loaders::Manifest| {
            m.classes.clear();
            (m.version, m.targets) = (version, targets.clone());
        })
    };
    refused(numbers(1, vec![age(1.0)]), &["`version` is 1", "expected 4", "`targets`"]);
    refused(numbers(4, vec![age(1.0), age(2.0)]), &["`targets`", "different names", "\"age\" twice"]);
    refused(numbers(4, vec![age(f64::NAN)]), &["null"]);
    refused(spoil(&|m| m.mean.clear()), &["`mean`", "0", "`std`", "3"]);

    fs::write(&path, "{\"version\": 1,").unwrap();
    refused(data.complaint(), &["EOF", "line 1"]);
    fs::write(&path, "{\"version\": 1}").unwrap();
    refused(data.complaint(), &["missing", "`splits`"]);
}

#[test]
fn unknown_keys_in_the_manifest_are_ignored() {
    let data = TestData::noise(6, 2, SPEC);
    let path = data.dir.join("dataset.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"licence\": \"MIT\",", 1)).unwrap();
    assert_eq!(data.split().unwrap().len(), 6);
}

#[test]
fn a_flipped_byte_fails_the_checksum_of_its_record() {
    let data = TestData::noise(9, 3, SPEC);
    let path = data.shard(2);
    let offset = data.lazy().shard(2).unwrap().offset(1).unwrap();
    for (at, of_length) in [(3, true), (60, false)] {
        edit(&path, |bytes| bytes[offset as usize + at] ^= 0x40);
        let error = data.complaint();
        assert!(matches!(&error, Error::Record { offset: found, .. } if *found == offset), "{error}");
        let (shard, record, fault) = record_fault(&error);
        assert_eq!((shard, record), ("train-00002-of-00003.tfrecord", 1));
        match fault {
            Fault::Record(RecordFault::LengthChecksum { .. }) => assert!(of_length, "{error}"),
            Fault::Record(RecordFault::PayloadChecksum { .. }) => assert!(!of_length, "{error}"),
            other => panic!("{other}"),
        }
        assert_mentions(&error.to_string(), &["trireme data verify"]);
        edit(&path, |bytes| bytes[offset as usize + at] ^= 0x40);
    }
}

#[test]
fn a_label_out_of_range_is_reported() {
    let mut payloads: Vec<_> = (0..3).map(|id| raw(id, &[0; 192], SPEC)).collect();
    let mut bad = Vec::new();
    let mut example = example::parse(&payloads[1]).unwrap();
    example.label = 10;
    example::encode(&example, &mut bad);
    payloads[1] = bad;
    let mut data = TestData::of(&payloads, 1, 3);
    let error = data.complaint();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (1, Fault::Label { stored: 10, offset: 0, label: 10, last: 9 })), "{error}");
    assert_mentions(&error.to_string(), &["label 10", "0 to 9", "label_offset"]);
    // With an offset of 1, a stored 10 is class 9 and a stored 0 is invalid.
    data.manifest.label_offset = 1;
    data.manifest.write(&data.dir).unwrap();
    let split = data.split().unwrap();
    assert_eq!(split.record(1, &mut Vec::new()).unwrap().1, 9);
    let error = split.record(0, &mut Vec::new()).unwrap_err();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (0, Fault::Label { stored: 0, offset: 1, label: -1, last: 9 })), "{error}");
}

#[test]
fn sample_that_does_not_exist() {
    let data = TestData::noise(3, 1, SPEC);
    let error = data.split().unwrap().record(3, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, Error::NoSample { split, id: 3, len: 3 } if split == "train"), "{error}");
}

#[test]
fn payload_that_is_no_example() {
    let data = TestData::of(&[vec![0xff; 30]], 1, 3);
    let error = data.complaint();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (0, Fault::Example(ExampleFault::Malformed(_)))), "{error}");
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
fn loader_complaint(payloads: &[Vec<u8>]) -> Error {
    let data = TestData::of(payloads, 1, 3);
    let order = EvalOrder::new(payloads.len() as u64, 8, 0, 1);
    data.loader(&["normalize"], SPEC, order, Options::default()).next().unwrap_err()
}

#[test]
fn image_of_another_size() {
    let good = raw(0, &[0; 192], SPEC);
    let other = raw(1, &[0; 9 * 8 * 3], ImageSpec::new(9, 8, 3));
    let error = loader_complaint(&[good.clone(), other]);
    let (_, record, fault) = record_fault(&error);
    let image = ImageSpec::new(9, 8, 3);
    assert!(matches!((record, fault), (1, Fault::ImageSize { expected: SPEC, got }) if *got == image), "{error}");
    assert_mentions(&error.to_string(), &["9x8x3", "8x8x3", "resize(size)"]);
    let short = raw(1, &[0; 191], SPEC);
    let error = loader_complaint(&[good, short]);
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (1, Fault::RawLength { spec: SPEC, got: 191, .. })), "{error}");
    assert_mentions(&error.to_string(), &["8x8x3", "192", "191"]);
}

#[test]
fn image_that_cannot_be_decoded() {
    for (encoded, expected) in [
        (&b"neither"[..], None),
        (b"\x89PNG\r\n\x1a\n and no more", Some("PNG")),
        (b"\xff\xd8\xff and no more", Some("JPEG")),
    ] {
        let mut payload = Vec::new();
        let example = Example { height: 8, width: 8, channels: 3, ..Example::from_file(encoded, Format::Jpeg) };
        example::encode(&example, &mut payload);
        let error = loader_complaint(&[payload]);
        let (_, record, fault) = record_fault(&error);
        let found = match fault {
            Fault::Unknown(advice) => {
                assert_mentions(advice, &["\"neither\""]);
                None
            }
            Fault::Decode { format, .. } => Some(*format),
            other => panic!("{other}"),
        };
        assert_eq!((record, found), (0, expected), "{error}");
    }
}

#[test]
fn impossible_image_sizes_are_refused() {
    let huge = ImageSpec::new(u32::MAX, u32::MAX, u32::MAX);
    let fault_of = |spec| {
        let data = TestData::of(&[raw(0, &[], spec)], 1, 3);
        match data.split().unwrap().images().unwrap_err() {
            Error::Record { record: 0, offset: 0, fault, .. } => fault,
            other => panic!("not the error of record 0: {other}"),
        }
    };
    let fault = fault_of(ImageSpec::new(0, 0, 0));
    assert!(matches!(fault, Fault::Example(ExampleFault::RawSize("image/height"))), "{fault}");
    let fault = fault_of(huge);
    assert!(matches!(fault, Fault::RawLength { spec, got: 0, .. } if spec == huge), "{fault}");
}
