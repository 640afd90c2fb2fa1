//! Tests images with any number of labels: from tables, from folders with a list of labels, through all commands, and
//! with invalid lists.

use crate::common::pictures::{png, write};
use crate::common::{Temp, assert_bad_lines, contents, each_record, index, options, refused};
use data_tools::{ConvertOptions, OnBad, ReshapeOptions, Share};
use data_tools::{convert, export_webdataset, extract, info, merge, reshard, sample, split, stats, verify};
use loaders::{Dataset, Manifest};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::mentions;

const TABLE: &str = "path,labels,split\na.png,cat;dog,train\nb.png,,train\nc.png,fox | cat,train\nd.png,dog,train\n\
                     sub/e.png,fox;dog;cat,val\n";

fn reshaping() -> ReshapeOptions {
    ReshapeOptions { shards: 1, progress: false, ..ReshapeOptions::default() }
}

/// Writes pictures with these names to `src`.
fn pictures(temp: &Temp, names: &[&str]) -> PathBuf {
    let src = temp.path("src");
    (0..).zip(names).for_each(|(salt, name)| write(&src.join(name), &png(6, 5, salt)));
    src
}

/// Writes the table above and its pictures. Returns the path of the table.
fn source(temp: &Temp) -> PathBuf {
    let src = pictures(temp, &["a.png", "b.png", "c.png", "d.png", "sub/e.png"]);
    write(&src.join("labels.csv"), TABLE.as_bytes());
    src.join("labels.csv")
}

/// Returns the class names of each image of a split by file name, and the text of its record.
fn found(out: &Path, split: &str) -> BTreeMap<String, (Vec<String>, String)> {
    let all = each_record(out, split, |split, example, _| {
        assert!(split.multi_label());
        let names = split.classes_of(&example).unwrap().into_iter().map(|c| split.class_names()[c as usize].clone());
        (example.filename.to_string(), (names.collect(), example.text.to_string()))
    });
    all.into_iter().collect()
}

fn names(out: &Path, split: &str) -> Vec<String> {
    found(out, split).into_iter().map(|(file, (names, _))| format!("{file}: {}", names.join(" "))).collect()
}

const TRAIN: [&str; 4] = ["a.png: cat dog", "b.png: ", "c.png: cat fox", "d.png: dog"];

#[test]
fn a_table_with_a_column_of_labels() {
    let temp = Temp::new();
    let out = temp.path("out");
    let made = convert("csv", &source(&temp), &out, &options()).unwrap();
    assert_eq!((made.manifest.version, made.manifest.multi_label), (2, true));
    assert_eq!(made.manifest.classes, ["cat", "dog", "fox"]);
    assert_eq!(names(&out, "train"), TRAIN);
    assert_eq!(found(&out, "validation")["sub/e.png"].1, "cat; dog; fox");
    assert!(verify(&out, 1).unwrap().is_ok());
    let text = fs::read_to_string(out.join("dataset.json")).unwrap();
    assert!(text.contains("\"version\": 2") && text.contains("\"multi_label\": true"), "{text}");
}

/// A `labels` column with one label per row gives the same records as a `label` column. Only `dataset.json` differs.
#[test]
fn a_labels_column_with_one_label_gives_the_same_records() {
    let temp = Temp::new();
    let src = pictures(&temp, &["a.png", "b.png"]);
    for (column, out) in [("label", "one"), ("labels", "several")] {
        write(&src.join("labels.csv"), format!("path,{column}\na.png,cat\nb.png,dog\n").as_bytes());
        convert("csv", &src.join("labels.csv"), &temp.path(out), &options()).unwrap();
    }
    let (mut one, mut several) = (contents(&temp.path("one")), contents(&temp.path("several")));
    let [json, other] = [one.remove("dataset.json"), several.remove("dataset.json")].map(Option::unwrap);
    assert_eq!(one, several);
    let json = String::from_utf8(json).unwrap();
    assert!(json.contains("\"version\": 1") && !json.contains("multi_label"), "{json}");
    assert_eq!(json, String::from_utf8(other).unwrap().replace("2,\n  \"multi_label\": true", "1"));
}

#[test]
fn a_separator_makes_several_labels_of_any_column() {
    let temp = Temp::new();
    let src = pictures(&temp, &["a.png", "b.png"]);
    let table = src.join("labels.csv");
    write(&table, b"image,label\na.png,haze primary\nb.png,primary water\n");
    let spaced = ConvertOptions { label_separator: Some(' '), ..options() };
    convert("csv", &table, &temp.path("a"), &spaced).unwrap();
    assert_eq!(names(&temp.path("a"), "train"), ["a.png: haze primary", "b.png: primary water"]);
    convert("csv", &table, &temp.path("b"), &options()).unwrap();
    assert_eq!(Manifest::read(&temp.path("b")).unwrap().classes, ["haze primary", "primary water"]);
    // The labels are indices into a given list of classes.
    write(&src.join("classes.txt"), b"haze\nprimary\nwater\n");
    write(&table, b"image,labels\na.png,0|2\nb.png,\n");
    let given = ConvertOptions { classes: Some(src.join("classes.txt")), ..options() };
    convert("csv", &table, &temp.path("c"), &given).unwrap();
    assert_eq!(names(&temp.path("c"), "train"), ["a.png: haze water", "b.png: "]);
}

/// A label in a list may contain the characters that separate labels in a text. Several labels need a key in the plural.
#[test]
fn lists_in_json_lines() {
    let temp = Temp::new();
    let src = pictures(&temp, &["a.png", "b.png", "c.png"]);
    let table = src.join("labels.jsonl");
    let lines = |key: &str, labels: [&str; 3]| {
        let line = |(name, labels): (&str, &str)| format!("{{\"path\": \"{name}.png\", \"{key}\": {labels}}}\n");
        let text: String = ["a", "b", "c"].into_iter().zip(labels).map(line).collect();
        write(&table, text.as_bytes());
    };
    lines("labels", [r#"["T-shirt|top", "cat", ""]"#, "[]", r#""cat;dog""#]);
    let comma = ConvertOptions { label_separator: Some(','), ..options() };
    for (out, options, third) in [("a", options(), "c.png: cat dog"), ("b", comma, "c.png: cat;dog")] {
        convert("csv", &table, &temp.path(out), &options).unwrap();
        assert_eq!(names(&temp.path(out), "train"), ["a.png: T-shirt|top cat", "b.png: ", third]);
    }
    lines("label", [r#"["cat"]"#, r#""dog""#, r#"["cat", "dog"]"#]);
    let error = refused("csv", &table, &options(), &[]);
    assert_bad_lines(&error, "labels.jsonl", "1 line", &[&["line 3: ", "list of 2", "`labels`"]]);
    lines("labels", [r#"["cat"]"#, r#"["c\nat", "dog"]"#, "[]"]);
    assert_bad_lines(
        &refused("csv", &table, &options(), &[]),
        "labels.jsonl",
        "1 line",
        &[&["line 2: ", "line break"]],
    );
    lines("label", [r#"["cat"]"#, r#""dog""#, r#""a;b""#]);
    let made = convert("csv", &table, &temp.path("c"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["a;b", "cat", "dog"]);
}

#[test]
fn a_folder_with_a_table_or_a_json_file() {
    let temp = Temp::new();
    let src = pictures(&temp, &["train/a.png", "train/x/b.png", "val/c.png"]);
    let table = temp.path("labels.csv");
    write(&table, b"file,tags\ntrain/a.png,cat;dog\n./train/x/b.png,\nval/c.png,dog\n");
    let json = temp.path("labels.json");
    write(&json, b"{\"train/a.png\": [\"dog\", \"cat\"],\n\"train/x/b.png\": [],\n\"val/c.png\": \"dog\"}\n");
    for list in [&table, &json] {
        let out = temp.path(list.extension().unwrap().to_str().unwrap());
        let with = ConvertOptions { labels: Some(list.clone()), ..options() };
        convert("folder", &src, &out, &with).unwrap();
        assert_eq!(names(&out, "train"), ["train/a.png: cat dog", "train/x/b.png: "]);
        assert_eq!(names(&out, "validation"), ["val/c.png: dog"]);
    }
    assert_eq!(contents(&temp.path("csv")), contents(&temp.path("json")));
    // The same folders with other names for the splits.
    fs::rename(src.join("train"), src.join("Train")).unwrap();
    fs::rename(src.join("val"), src.join("dev")).unwrap();
    write(&table, b"file,tags\nTrain/a.png,cat;dog\nTrain/x/b.png,\ndev/c.png,dog\n");
    let with = ConvertOptions { labels: Some(table.clone()), ..options() };
    convert("folder", &src, &temp.path("words"), &with).unwrap();
    assert_eq!(names(&temp.path("words"), "validation"), ["dev/c.png: dog"]);
    // Another folder next to the splits needs a split.
    write(&src.join("extra/d.png"), &png(6, 5, 3));
    write(&table, b"file,tags\nTrain/a.png,cat;dog\nTrain/x/b.png,\ndev/c.png,dog\nextra/d.png,cat\n");
    refused("folder", &src, &with, &["`extra`", "--split-map extra="]);
    let mapped = ConvertOptions { split_map: vec![("extra".into(), "test".into())], ..with };
    convert("folder", &src, &temp.path("mapped"), &mapped).unwrap();
    assert_eq!(names(&temp.path("mapped"), "test"), ["extra/d.png: cat"]);
}

#[test]
fn bad_lines_are_all_listed() {
    let temp = Temp::new();
    let src = pictures(&temp, &["a.png", "b.png", "c.png"]);
    write(&src.join("classes.txt"), b"cat\ndog\n");
    let list = src.join("labels.csv");
    write(&list, b"path,labels\na.png,cat;dgo;cow\nb.png,cat;cat\nmissing.png,dog\na.png,dog\n,dog\nc.png,cat,dog\n");
    let with = ConvertOptions { classes: Some(src.join("classes.txt")), ..options() };
    let error = refused("csv", &list, &with, &["--on-bad skip"]);
    let expected: [&[&str]; 6] = [
        &["line 2: label `dgo`", "2 classes", "\"dog\"", "`cow`"],
        &["line 3: ", "`cat`", "twice"],
        &["line 4: ", "missing.png", "not found"],
        &["line 5: a.png", "on line 2"],
        &["line 6: ", "no path"],
        &["line 7: ", "more fields"],
    ];
    assert_bad_lines(&error, "labels.csv", "6 lines", &expected);
    let skip = ConvertOptions { on_bad: OnBad::Skip, ..with };
    refused("csv", &list, &skip, &["labels.csv: none"]);
    // With `--labels`, all images of the folder are converted, so an image that the list does not contain is an error.
    let json = temp.path("labels.json");
    write(&json, b"{\"a.png\": [\"cat\"],\n\"a.png\": [\"dog\"],\n\"b.png\": [true],\n\"gone.png\": []}");
    let with = ConvertOptions { labels: Some(json.clone()), ..options() };
    let error = refused("folder", &src, &with, &[]);
    let expected: [&[&str]; 4] = [
        &["line 2: a.png", "on line 1"],
        &["line 3: true: ", "a list"],
        &["line 4: ", "gone.png", "not found"],
        &["c.png: ", "labels.json"],
    ];
    assert_bad_lines(&error, "labels.json", "4 entries", &expected);
    let made = convert("folder", &src, &temp.path("some"), &ConvertOptions { on_bad: OnBad::Skip, ..with }).unwrap();
    assert_eq!((made.skipped.len(), names(&temp.path("some"), "train")), (4, vec!["a.png: cat".to_string()]));
    write(&json, b"[1]");
    let with = ConvertOptions { labels: Some(json), ..options() };
    refused("folder", &src, &with, &["labels.json: ", "an object"]);
}

#[test]
fn options_where_they_do_not_belong() {
    let temp = Temp::new();
    let src = pictures(&temp, &["a.png"]);
    let separator = ConvertOptions { label_separator: Some(';'), ..options() };
    let refused = |kind: &str, options: &ConvertOptions, parts: &[&str]| {
        let error = refused(kind, &src, options, parts);
        assert!(error.is_usage(), "{error}");
    };
    refused("folder", &separator, &["--label-separator ", "--labels labels.csv"]);
    refused("webdataset", &separator, &["--label-separator ", "to webdataset", "convert csv"]);
    let labels = ConvertOptions { labels: Some(src.join("x.json")), ..options() };
    refused("csv", &labels, &["--labels ", "to csv"]);
    refused("mnist", &labels, &["--labels ", "mnist"]);
    let both = ConvertOptions { labels: Some(src.join("x.json")), ..separator };
    refused("folder", &both, &["--label-separator ", "JSON"]);
}

#[test]
fn measures_summaries_and_single_images() {
    let temp = Temp::new();
    let out = temp.path("out");
    convert("csv", &source(&temp), &out, &options()).unwrap();
    let measured = stats(&out, "train", 1).unwrap();
    let counts: Vec<(&str, u64)> = measured.classes.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(counts, [("cat", 2), ("dog", 2), ("fox", 1)]);
    mentions(&measured, &["5 labels", "1.25 an image", "1 image without"]);
    assert_eq!((&measured.to_json()["labels"], &measured.to_json()["without_label"]), (&5.into(), &1.into()));
    let summary = info(&out).unwrap();
    mentions(&summary, &["any number"]);
    assert_eq!(summary.to_json()["multi_label"], true);
    let classes: Vec<String> =
        (0..4).map(|id| extract(&out, "train", id, &temp.path(&format!("{id}.png"))).unwrap().class).collect();
    for expected in ["cat; dog", "no label", "cat; fox", "dog"] {
        assert!(classes.iter().any(|class| class == expected), "{expected}: {classes:?}");
    }
    data_tools::show(&out, &temp.path("sheet.png"), &data_tools::ShowOptions::default()).unwrap();
}

#[test]
fn records_that_contradict_the_manifest_are_named() {
    let temp = Temp::new();
    let out = temp.path("out");
    convert("csv", &source(&temp), &out, &options()).unwrap();
    let mut manifest = Manifest::read(&out).unwrap();
    // dataset.json lists one class fewer than the records use.
    manifest.classes.pop();
    manifest.write(&out).unwrap();
    let report = verify(&out, 1).unwrap();
    assert_eq!(report.bad.len(), 2, "{report}");
    report.bad.iter().for_each(|bad| mentions(&bad.what, &["label 2 ", "0 to 1"]));
    // dataset.json declares one label per image.
    manifest.classes.push("fox".into());
    (manifest.version, manifest.multi_label) = (1, false);
    manifest.write(&out).unwrap();
    mentions(verify(&out, 1).unwrap(), &["0 labels", "`multi_label`"]);
    let split = Dataset::open(&out).unwrap().split("train").unwrap();
    let errors: Vec<String> =
        (0..4).filter_map(|id| split.record(id, &mut Vec::new()).err()).map(|e| e.to_string()).collect();
    assert!(errors.len() == 3 && errors.iter().any(|e| e.contains("2 labels")), "{errors:?}");
    // `version` contradicts `multi_label` or is unknown.
    for (version, several, part) in [
        (1, true, "`version` is 1"),
        (2, false, "`version` is 2"),
        (3, true, "`version` is 3"),
        (4, true, "`version` is 4"),
        (5, true, "1 to 4, got 5"),
    ] {
        (manifest.version, manifest.multi_label) = (version, several);
        fs::write(out.join("dataset.json"), serde_json::to_string(&manifest).unwrap()).unwrap();
        let error = Manifest::read(&out).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // Without `dataset.json`, the list of classes is unknown.
    fs::remove_file(out.join("dataset.json")).unwrap();
    mentions(index(&out).unwrap_err(), &["more than one label", "dataset.json"]);
}

#[test]
fn reshaping_keeps_all_labels() {
    let temp = Temp::new();
    let out = temp.path("out");
    convert("csv", &source(&temp), &out, &options()).unwrap();
    reshard(&out, &temp.path("resharded"), true, &reshaping()).unwrap();
    assert_eq!(names(&temp.path("resharded"), "train"), TRAIN);
    // Another data set with a different order of classes.
    let src = temp.path("other");
    write(&src.join("z.png"), &png(6, 5, 9));
    write(&src.join("y.png"), &png(6, 5, 8));
    write(&src.join("labels.csv"), b"path,labels\nz.png,ape;fox\ny.png,\n");
    convert("csv", &src.join("labels.csv"), &temp.path("second"), &options()).unwrap();
    merge(&[&temp.path("second"), &out], &temp.path("merged"), &reshaping()).unwrap();
    assert_eq!(Manifest::read(&temp.path("merged")).unwrap().classes, ["ape", "fox", "cat", "dog"]);
    let expected = ["a.png: cat dog", "b.png: ", "c.png: fox cat", "d.png: dog", "y.png: ", "z.png: ape fox"];
    assert_eq!(names(&temp.path("merged"), "train"), expected);
    assert!(verify(&temp.path("merged"), 1).unwrap().is_ok());
    let half = Share::Fraction(0.5);
    split(&out, &temp.path("split"), "train", "held", half, &reshaping()).unwrap();
    let parts = [names(&temp.path("split"), "train"), names(&temp.path("split"), "held")];
    assert_eq!([parts[0].len(), parts[1].len()], [2, 2]);
    let mut all = parts.concat();
    all.sort();
    assert_eq!(all, TRAIN);
    sample(&out, &temp.path("sample"), half, &reshaping()).unwrap();
    assert_eq!(names(&temp.path("sample"), "train").len(), 2);
    let error = sample(&out, &temp.path("x"), Share::PerClass(1), &reshaping()).unwrap_err();
    mentions(error, &["several labels", "fraction"]);
    // Data sets with one label and with several cannot be merged.
    write(&src.join("labels.csv"), b"path,label\nz.png,ape\n");
    convert("csv", &src.join("labels.csv"), &temp.path("one"), &options()).unwrap();
    let one = temp.path("one");
    let error = merge(&[&out, &one], &temp.path("x"), &reshaping()).unwrap_err();
    mentions(error, &[&format!("{} may have several", out.display()), &format!("{} have one", one.display())]);
    let drawn = ConvertOptions { validation_fraction: Some(0.5), ..options() };
    write(&temp.path("src/labels.csv"), TABLE.replace("val\n", "train\n").as_bytes());
    convert("csv", &temp.path("src/labels.csv"), &temp.path("drawn"), &drawn).unwrap();
    assert_eq!([names(&temp.path("drawn"), "train").len(), names(&temp.path("drawn"), "validation").len()], [2, 3]);
}

#[test]
fn webdataset_archives_list_the_labels() {
    let temp = Temp::new();
    let out = temp.path("out");
    convert("csv", &source(&temp), &out, &options()).unwrap();
    export_webdataset(&out, &temp.path("tars"), 1, false).unwrap();
    let mut archive = tar::Archive::new(fs::File::open(temp.path("tars/validation-000000.tar")).unwrap());
    let mut members = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let (mut text, name) = (Vec::new(), entry.path().unwrap().display().to_string());
        std::io::Read::read_to_end(&mut entry, &mut text).unwrap();
        members.insert(name, text);
    }
    assert_eq!(members.keys().collect::<Vec<_>>(), ["000000000.json", "000000000.png"]);
    let about: serde_json::Value = serde_json::from_slice(&members["000000000.json"]).unwrap();
    assert_eq!(about["labels"], serde_json::json!([0, 1, 2]));
    assert_eq!(about["class_names"], serde_json::json!(["cat", "dog", "fox"]));
    // The archives can be read again.
    convert("webdataset", &temp.path("tars"), &temp.path("again"), &options()).unwrap();
    let sets = |out: &Path, split: &str| {
        let mut sets: Vec<Vec<String>> = found(out, split).into_values().map(|(names, _)| names).collect();
        sets.sort();
        sets
    };
    for split in ["train", "validation"] {
        assert_eq!(sets(&temp.path("again"), split), sets(&out, split));
    }
    assert_eq!(Manifest::read(&temp.path("again")).unwrap().classes, ["cat", "dog", "fox"]);
}
