//! Tests how labels map to classes: named numbers, splits with different numbering, and labels without a class.

use crate::common::foreign::{Foreign, write_shard};
use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, Error, OnBad, ReshapeOptions, convert, merge, verify};
use loaders::example;
use loaders::record::append_record;
use std::fs;
use std::path::{Path, PathBuf};
use support::mentions;

fn listing(path: PathBuf) -> ConvertOptions {
    ConvertOptions { classes: Some(path), ..options() }
}

/// Asserts that each picture's class matches its strongest colour: a is red, b is green, c is blue.
fn colours_fit(out: &Path, split: &str) {
    let found = images(out, split);
    assert!(!found.is_empty());
    for image in found {
        let strongest = (0..3).max_by_key(|&channel| image.pixels[channel]).unwrap();
        assert_eq!(image.class, ["a", "b", "c"][strongest], "{}", image.name);
    }
}

/// `train` names its labels a, b, c. `validation` names them a, c.
#[test]
fn each_file_of_parquet_names_its_own_labels() {
    let temp = Temp::new();
    let src = case("parquet-class-names/src");
    let made = convert("parquet", &src, &temp.path("out"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["a", "b", "c"]);
    ["train", "validation"].iter().for_each(|split| colours_fit(&temp.path("out"), split));
    // A list in a different order only changes the numbers of the classes.
    let list = temp.path("list.txt");
    fs::write(&list, "c\nb\na\n").unwrap();
    for (name, src) in [("both", src.clone()), ("one", src.join("train.parquet"))] {
        let made = convert("parquet", &src, &temp.path(name), &listing(list.clone())).unwrap();
        assert_eq!(made.manifest.classes, ["c", "b", "a"]);
        colours_fit(&temp.path(name), "train");
    }
    // A list with other names renames the classes. Labels are errors if the list lacks their classes.
    fs::write(&list, "red\ngreen\nblue\n").unwrap();
    let made = convert("parquet", &src.join("train.parquet"), &temp.path("renamed"), &listing(list.clone())).unwrap();
    assert_eq!(made.notes.len(), 1, "{made}");
    mentions(&made.notes[0], &["a is now red", "b is now green", "c is now blue"]);
    fs::write(&list, "c\na\n").unwrap();
    refused("parquet", &src, &listing(list.clone()), &["train.parquet: row", "label `b`", "2 classes"]);
    let some = ConvertOptions { on_bad: OnBad::Skip, ..listing(list) };
    let made = convert("parquet", &src, &temp.path("some"), &some).unwrap();
    assert!(made.skipped.iter().all(|line| line.contains("label `b`")) && !made.skipped.is_empty());
    colours_fit(&temp.path("some"), "train");
}

fn tar_of(path: &Path, samples: &[(&str, &str)]) {
    let image = png(9, 9, 1);
    let members = samples.iter().flat_map(|(key, json)| {
        [(format!("{key}.json"), json.as_bytes().to_vec()), (format!("{key}.png"), image.clone())]
    });
    write(path, &tar("s", &members.collect::<Vec<_>>()));
}

#[test]
fn json_names_its_labels() {
    let temp = Temp::new();
    let src = temp.path("src");
    let train = src.join("train-0.tar");
    tar_of(&train, &[("0", r#"{"label": 2, "class_name": "fox"}"#), ("1", r#"{"label": 0, "class_name": "cat"}"#)]);
    tar_of(&src.join("val-0.tar"), &[("2", r#"{"label": 2, "class_name": "fox"}"#)]);
    let made = convert("webdataset", &src, &temp.path("out"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "1", "fox"]);
    assert_eq!(images(&temp.path("out"), "validation")[0].class, "fox");
    fs::write(temp.path("list.txt"), "fox\ncat\n").unwrap();
    let made = convert("webdataset", &src, &temp.path("listed"), &listing(temp.path("list.txt"))).unwrap();
    assert_eq!((made.manifest.classes.len(), images(&temp.path("listed"), "validation")[0].class.as_str()), (2, "fox"));
    // The list next to the archives contradicts the names in the archives.
    fs::write(src.join("classes.txt"), "fox\ndog\ncat\n").unwrap();
    refused("webdataset", &src, &options(), &["label 0 ", "`cat` in s/1.png", "`fox` in classes.txt"]);
    fs::remove_file(src.join("classes.txt")).unwrap();
    tar_of(&src.join("val-0.tar"), &[("2", r#"{"label": 2, "class_name": "cat"}"#)]);
    let parts = ["label 2 ", "`fox` in s/0.png", "train-0.tar", "`cat` in s/2.png", "val-0.tar"];
    refused("webdataset", &src, &options(), &parts);
}

/// Writes a table with the text `text`, next to the pictures 0.png to 3.png.
fn table(temp: &Temp, text: &str) -> PathBuf {
    (0..4).for_each(|i| write(&temp.path(&format!("t/{i}.png")), &png(9, 9, i)));
    write(&temp.path("t/t.csv"), text.as_bytes());
    temp.path("t/t.csv")
}

#[test]
fn tables_name_their_labels() {
    let temp = Temp::new();
    let src = table(&temp, "path,label,class_name\n0.png,1,dog\n1.png,0,cat\n");
    assert_eq!(convert("csv", &src, &temp.path("a"), &options()).unwrap().manifest.classes, ["cat", "dog"]);
    fs::write(temp.path("list.txt"), "dog\ncat\n").unwrap();
    convert("csv", &src, &temp.path("b"), &listing(temp.path("list.txt"))).unwrap();
    assert_eq!(images(&temp.path("b"), "train").iter().map(|i| i.class.as_str()).collect::<Vec<_>>(), ["dog", "cat"]);
    let src = table(&temp, "path,label,class_name\n0.png,1,dog\n1.png,1,cat\n");
    refused("csv", &src, &options(), &["label 1 ", "`dog` in line 2", "`cat` in line 3"]);
    // A row with an extra field, with and without a header.
    for text in ["path,label\n0.png,crane, bird\n", "0.png,crane\n1.png,crane,bird\n"] {
        let error = refused("csv", &table(&temp, text), &options(), &[]);
        assert_bad_lines(&error, "t.csv", "1 line", &[&["line 2: ", "more fields"]]);
    }
    // Lines may have trailing separators, Windows paths and fastai's `is_valid` column. JSON Lines are read, too.
    let text = "path,label,is_valid\n..\\t\\0.png,a,False,\n1.png,a,True,,\n";
    let made = convert("csv", &table(&temp, text), &temp.path("c"), &options()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.manifest.splits["validation"].count), (1, 1));
    let lines =
        "{\"file_name\": \"0.png\", \"label\": 1, \"text\": \"x\"}\n\n{\"label\": 0, \"file_name\": \"1.png\"}\n";
    fs::write(temp.path("t/metadata.jsonl"), lines).unwrap();
    convert("csv", &temp.path("t/metadata.jsonl"), &temp.path("d"), &options()).unwrap();
    assert_eq!(images(&temp.path("d"), "train").iter().map(|i| i.class.as_str()).collect::<Vec<_>>(), ["1", "0"]);
    refused("folder", &temp.path("t"), &options(), &["metadata.jsonl", "convert csv"]);
    // The first object's keys are the columns, so it must have the key of the split.
    let lines = |first: &str| {
        let second = r#"{"label": 1, "file_name": "1.png", "Split": "test"}"#;
        format!("{{\"file_name\": \"0.png\", \"label\": 1{first}}}\n{second}\n")
    };
    fs::write(temp.path("t/metadata.jsonl"), lines("")).unwrap();
    refused("csv", &temp.path("t/metadata.jsonl"), &options(), &["metadata.jsonl: line 2", "no key `Split`", "null"]);
    fs::write(temp.path("t/metadata.jsonl"), lines(", \"Split\": null")).unwrap();
    let made = convert("csv", &temp.path("t/metadata.jsonl"), &temp.path("e"), &options()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.manifest.splits["test"].count), (1, 1));
}

fn record(label: i64, text: &'static str) -> Foreign {
    Foreign { text, ..Foreign::raw(label) }
}

/// Writes `train` and `test` shards with the given labels and names.
fn shards(dir: &Path, splits: &[(&str, &[(i64, &'static str)])]) {
    fs::create_dir_all(dir).unwrap();
    for (split, records) in splits {
        let records: Vec<Foreign> = records.iter().map(|&(label, text)| record(label, text)).collect();
        write_shard(&dir.join(format!("{split}-00000-of-00001.tfrecord")), &records);
    }
}

#[test]
fn records_that_contradict_each_other() {
    let temp = Temp::new();
    let dir = temp.path("d");
    shards(&dir, &[("train", &[(1, "a"), (2, "b")]), ("test", &[(1, "b"), (2, "a")])]);
    let parts = ["label 1 ", "`a`", "`b` in record 0", "byte 0", "test-00000-of-00001"];
    let train = dir.join("train-00000-of-00001.tfrecord");
    let is_first =
        |error: &Error| matches!(error, Error::Record { shard, record: 0, offset: 0, .. } if *shard == train);
    let error = index(&dir).unwrap_err();
    assert!(is_first(&error), "{error}");
    mentions(&error, &parts);
    // The error names the source, not the deleted copy.
    let error = refused("tfrecord", &dir, &options(), &parts);
    assert!(is_first(&error), "{error}");
    // A data set that was indexed without checks.
    let fine = [("train", &[(1, "a"), (2, "b")][..]), ("test", &[(2, "b")])];
    shards(&dir, &fine);
    index(&dir).unwrap();
    assert!(verify(&dir, 1).unwrap().is_ok());
    shards(&dir, &[("test", &[(2, "a")])]);
    fs::remove_file(dir.join("test-00000-of-00001.tfrecord.idx")).unwrap();
    index(&dir).unwrap();
    mentions(verify(&dir, 1).unwrap(), &["label 2 ", "`b` in dataset.json", "image/class/text", "`a`", "class 0"]);
}

#[test]
fn two_classes_of_one_name() {
    let temp = Temp::new();
    let dir = temp.path("d");
    fs::create_dir_all(&dir).unwrap();
    let mut records = Vec::new();
    for (label, synset) in [(1, "n02012849"), (2, "n03126707"), (3, "n01440764")] {
        let text = if label == 3 { "tench" } else { "crane" };
        let record = Foreign { encoded: vec![1, 2, 3], shape: [1, 1, 3], text, ..Foreign::raw(label) };
        let more = [("image/class/synset", synset)];
        append_record(&mut records, |out| example::encode_with(&record.example(), &more, out));
    }
    fs::write(dir.join("train.tfrecord"), records).unwrap();
    let made = index(&dir).unwrap();
    assert_eq!(made.manifest.classes, ["n02012849 crane", "n03126707 crane", "tench"]);
    assert!(verify(&dir, 1).unwrap().is_ok());
    // If class names are equal, merging keeps the classes separate or is rejected.
    let mut alike = made.manifest;
    alike.classes = ["crane", "crane", "tench"].map(String::from).to_vec();
    alike.write(&dir).unwrap();
    let options = ReshapeOptions { progress: false, ..ReshapeOptions::default() };
    let twice = merge(&[&dir, &dir], &temp.path("twice"), &options).unwrap();
    assert_eq!(twice.manifest.classes, alike.classes);
    let mut labels = each_record(&temp.path("twice"), "train", |_, _, label| label);
    labels.sort_unstable();
    assert_eq!(labels, [0, 0, 1, 1, 2, 2]);
    shards(&temp.path("e"), &[("train", &[(0, "crane")])]);
    index(&temp.path("e")).unwrap();
    let error = merge(&[&temp.path("e"), &dir], &temp.path("no"), &options).unwrap_err();
    mentions(error, &["classes 0 and 1", "`crane`"]);
}

/// `train` has labels 1 to 3, `test` has labels 0 to 2.
#[test]
fn classes_that_only_the_test_split_has() {
    let temp = Temp::new();
    let dir = temp.path("d");
    shards(&dir, &[("train", &[(1, ""), (2, ""), (3, "")]), ("test", &[(0, ""), (1, ""), (2, "")])]);
    let parts = ["label 0 (1 record", "1 to 3", "test 0 to 2"];
    let error = index(&dir).unwrap_err();
    mentions(&error, &parts);
    mentions(&error, &["--on-bad skip"]);
    let indexed = data_tools::index(&dir, &[], OnBad::Skip).unwrap();
    mentions(&indexed.notes[0], &parts);
    mentions(verify(&dir, 1).unwrap(), &["class `0`: ", "test has 1 record"]);

    let text = "path,label,split\n0.png,a,train\n1.png,b,train\n2.png,z,val\n3.png,a,val\n";
    let src = table(&temp, text);
    refused("csv", &src, &options(), &["line 4: label `z`", "2 classes of train"]);
    let made = convert("csv", &src, &temp.path("csv"), &skipping()).unwrap();
    assert_eq!((made.manifest.classes.len(), made.skipped.len()), (2, 1));
    assert!(fs::read_to_string(temp.path("csv/skipped.txt")).unwrap().contains("line 4: label `z`"));
    // This is an error even if a list contains the class.
    fs::write(temp.path("list.txt"), "a\nb\nz\n").unwrap();
    refused("csv", &src, &listing(temp.path("list.txt")), &["line 4: label `z`", "no image"]);
    let tars = temp.path("tars");
    tar_of(&tars.join("train-0.tar"), &[("0", r#"{"label": 1}"#), ("1", r#"{"label": 2}"#)]);
    tar_of(&tars.join("test-0.tar"), &[("2", r#"{"label": 0}"#), ("3", r#"{"label": 1}"#)]);
    refused("webdataset", &tars, &options(), &["test-0.tar: s/2.png: ", "label `0`", "2 classes of train", "(1 to 2)"]);
    assert_eq!(convert("webdataset", &tars, &temp.path("wds"), &skipping()).unwrap().manifest.splits["test"].count, 1);
}

#[test]
fn labels_that_no_class_has_are_left_out() {
    let temp = Temp::new();
    let folder = case("on-bad-skip-labels");
    refused("parquet", &folder.join("null-label"), &options(), &["row ", "is null", "--on-bad skip"]);
    for (kind, name, parts) in [
        ("parquet", "null-label", &["is null"][..]),
        ("parquet", "minus-one", &["label `-1`"]),
        ("recordio", "insightface", &["record 0 at byte 0: ", "2 labels", "no image"]),
    ] {
        let out = temp.path(name);
        let made = convert(kind, &folder.join(name), &out, &skipping()).unwrap();
        mentions(&made.skipped[0], parts);
        let listed = fs::read_to_string(out.join("skipped.txt")).unwrap();
        assert_eq!(listed.lines().collect::<Vec<_>>(), made.skipped);
        assert!(verify(&out, 1).unwrap().is_ok());
    }
    tar_of(
        &temp.path("t.tar"),
        &[("0", r#"{"label": 0}"#), ("1", r#"{"label": -1}"#), ("2", r#"{"label": null}"#), ("3", "{x")],
    );
    let made = convert("webdataset", &temp.path("t.tar"), &temp.path("wds"), &skipping()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (1, 3), "{made}");
    assert!(made.skipped.iter().any(|line| line.contains("s/3.json: ") && line.contains("JSON")), "{made}");
    let made = convert("csv", &table(&temp, "0.png,-1\n1.png,0\n2.png,\n"), &temp.path("csv"), &skipping()).unwrap();
    assert_eq!((made.manifest.classes.len(), made.skipped.len()), (1, 2), "{made}");
    shards(&temp.path("r"), &[("train", &[(0, ""), (-1, ""), (1, "")])]);
    let made = convert("tfrecord", &temp.path("r"), &temp.path("records"), &skipping()).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 2, "{made}");
    mentions(&made.skipped[0], &["r/train-00000-of-00001.tfrecord: ", "record 1 at byte", "label -1"]);
    assert!(verify(&temp.path("records"), 1).unwrap().is_ok());
}

#[test]
fn concatenated_archives_are_read_as_one() {
    let temp = Temp::new();
    tar_of(&temp.path("a.tar"), &[("0", r#"{"label": 0}"#), ("1", r#"{"label": 1}"#)]);
    tar_of(&temp.path("b.tar"), &[("2", r#"{"label": 0}"#)]);
    let [a, b] = ["a.tar", "b.tar"].map(|name| fs::read(temp.path(name)).unwrap());
    write(&temp.path("src/train-0.tar"), &[a.as_slice(), &b].concat());
    let made = convert("webdataset", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 3);
    fs::remove_file(temp.path("src/train-0.tar")).unwrap();
    write(&temp.path("src/train-0.tar.gz"), &gz(&a));
    refused("webdataset", &temp.path("src"), &options(), &["train-0.tar.gz: ", "compressed", "unpack"]);
    fs::rename(temp.path("src/train-0.tar.gz"), temp.path("src/train-0.tar")).unwrap();
    refused("webdataset", &temp.path("src"), &options(), &["train-0.tar: ", "gzip", "unpack"]);
    let members = [("0.input.png".to_string(), png(9, 9, 1)), ("0.target.cls".to_string(), b"0".to_vec())];
    write(&temp.path("src/train-0.tar"), &tar("s", &members));
    refused("webdataset", &temp.path("src"), &options(), &[".input.png, .target.cls"]);
}

#[test]
fn shards_by_the_words_in_their_names() {
    let temp = Temp::new();
    let dir = temp.path("slim");
    fs::create_dir_all(&dir).unwrap();
    for name in ["flowers_train_00000-of-00002", "flowers_train_00001-of-00002", "flowers_val_00000-of-00001"] {
        write_shard(&dir.join(format!("{name}.tfrecord")), &[Foreign::raw(0), Foreign::raw(2)]);
    }
    fs::write(dir.join("labels.txt"), "0:cat\n1:dog\n2:emu\n").unwrap();
    let made = index(&dir).unwrap().manifest;
    assert_eq!(made.classes, ["cat", "dog", "emu"]);
    assert_eq!((made.splits["train"].count, made.splits["validation"].count, made.splits.len()), (4, 2, 2));
    fs::remove_file(dir.join("dataset.json")).unwrap();
    write_shard(&dir.join("extra-00000-of-00001"), &[Foreign::raw(0)]);
    mentions(index(&dir).unwrap_err(), &["`extra`", "extra, flowers_train, flowers_val"]);
    let map = [("extra".to_string(), "more".to_string())];
    assert_eq!(data_tools::index(&dir, &map, OnBad::Fail).unwrap().manifest.splits["more"].count, 1);
    // `convert` accepts the same mapping.
    let mapped = ConvertOptions { split_map: map.to_vec(), ..options() };
    let made = convert("tfrecord", &dir, &temp.path("copied"), &mapped).unwrap();
    assert_eq!(made.manifest.splits.keys().collect::<Vec<_>>(), ["more", "train", "validation"]);
}
