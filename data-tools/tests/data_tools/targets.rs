//! Tests numbers as labels. Tables and arrays become records with a number for each target, `dataset.json` has the
//! training split's statistics, and the commands that copy or describe data sets support numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bands::npy;
use crate::common::pictures::{png, write};
use crate::common::{Temp, assert_bad_lines, contents, each_record, index, tar};
use data_tools::{
    ConvertOptions, OnBad, ReshapeOptions, Share, convert, export_webdataset, extract, info, merge, reshard, sample,
    split, stats, verify,
};
use loaders::{Dataset, LabelKind};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use support::mentions;

/// Returns the two targets of image `id`.
fn numbers(id: u32) -> [f32; 2] {
    [id as f32 * 1.25 - 20.0, 1e6 + id as f32]
}

fn options(targets: &[&str]) -> ConvertOptions {
    let targets = targets.iter().map(|name| name.to_string()).collect();
    ConvertOptions { shards: 3, progress: false, targets, ..ConvertOptions::default() }
}

/// Writes 40 images for `train` and 8 for `test`, and a table that lists them. Returns the table's path.
fn table(temp: &Temp) -> PathBuf {
    let src = temp.path("src");
    let mut text = "split,File,\"angle, degrees\",weight\n".to_string();
    for id in 0..48 {
        write(&src.join(format!("{id}.png")), &png(8, 9, id));
        let ([angle, weight], split) = (numbers(id), if id < 40 { "train" } else { "test" });
        text += &format!("{split},{id}.png,{angle},{weight:e}\n");
    }
    fs::write(src.join("table.csv"), text).unwrap();
    src.join("table.csv")
}

/// Returns the targets of each image by image name.
fn records(dir: &Path, split: &str) -> BTreeMap<String, Vec<f32>> {
    let all = each_record(dir, split, |split, example, label| {
        assert_eq!((label, example.text), (0, ""));
        (example.filename.to_string(), split.targets_of(&example).unwrap())
    });
    all.into_iter().collect()
}

/// Checks each target's mean and standard deviation against plain sums.
fn assert_measured(dir: &Path, ids: impl Iterator<Item = u32> + Clone) {
    for (at, target) in Dataset::open(dir).unwrap().manifest.targets.iter().enumerate() {
        let all: Vec<f64> = ids.clone().map(|id| f64::from(numbers(id)[at])).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let std = (all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
        assert!((target.mean - mean).abs() < 1e-9 * mean.abs(), "{}: {} for {mean}", target.name, target.mean);
        assert!((target.std - std).abs() < 1e-9 * std, "{}: {} for {std}", target.name, target.std);
    }
}

#[test]
fn a_table_with_columns_of_numbers() {
    let (temp, targets) = (Temp::new(), ["angle, degrees", "weight"]);
    let src = table(&temp);
    let [one, four] = [1, 4].map(|jobs| {
        let out = temp.path(&format!("{jobs}"));
        let made = convert("csv", &src, &out, &ConvertOptions { jobs, ..options(&targets) }).unwrap();
        mentions(&made, &["2 targets", "train 40 ", "test 8 "]);
        assert_eq!(made.to_json()["targets"][1]["name"], "weight");
        out
    });
    assert_eq!(contents(&one), contents(&four), "the number of threads changes nothing");
    let set = Dataset::open(&one).unwrap();
    assert_eq!((set.manifest.version, set.manifest.label_kind()), (4, LabelKind::Numbers));
    assert!(set.manifest.classes.is_empty());
    assert_measured(&one, 0..40);
    for (name, ids) in [("train", 0..40), ("test", 40..48)] {
        let expected = ids.map(|id| (format!("{id}.png"), numbers(id).to_vec())).collect();
        assert_eq!(records(&one, name), expected);
    }
    assert!(verify(&one, 2).unwrap().is_ok());
    // a folder with images, and a table next to it
    let folder = src.parent().unwrap();
    let listed = ConvertOptions { labels: Some(src.clone()), ..options(&targets) };
    convert("folder", folder, &temp.path("folder"), &listed).unwrap();
    assert_eq!(records(&temp.path("folder"), "train"), records(&one, "train"));
    // part of the images becomes the validation split
    let drawn = ConvertOptions { validation_fraction: Some(0.25), ..options(&["weight"]) };
    convert("csv", &src, &temp.path("drawn"), &drawn).unwrap();
    assert_eq!(records(&temp.path("drawn"), "validation").len(), 10);
    // JSON Lines
    let lines = [
        "{\"file_name\": \"0.png\", \"weight\": 2.5, \"label\": \"cat\"}",
        "{\"file_name\": \"1.png\", \"weight\": -3}",
    ];
    fs::write(folder.join("metadata.jsonl"), lines.join("\n")).unwrap();
    convert("csv", &folder.join("metadata.jsonl"), &temp.path("jsonl"), &options(&["weight"])).unwrap();
    let expected = [("0.png".to_string(), vec![2.5]), ("1.png".to_string(), vec![-3.0])];
    assert_eq!(records(&temp.path("jsonl"), "train"), expected.into());
}

/// A line with numbers may repeat an earlier line, in a folder as in a table.
#[test]
fn repeated_lines_are_counted() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..2).for_each(|id| write(&src.join(format!("{id}.png")), &png(8, 9, id)));
    let list = src.join("table.csv");
    fs::write(&list, "path,x\n0.png,1\n1.png,2\n0.png,1\n").unwrap();
    for (kind, src, labels) in [("csv", &list, None), ("folder", &src, Some(list.clone()))] {
        let with = |out: &str, validation_fraction| {
            let options = ConvertOptions { labels: labels.clone(), validation_fraction, ..options(&["x"]) };
            convert(kind, src, &temp.path(out), &options)
        };
        let made = with(kind, None).unwrap();
        assert_eq!(made.manifest.splits["train"].count, 3);
        mentions(&made, &["1 line with the same image", "more than once"]);
        let error = with("none", Some(0.5)).unwrap_err();
        mentions(error, &["table.csv", "1 line", "--validation-fraction", "list each image once"]);
    }
}

#[test]
fn fields_that_are_no_numbers_are_named_with_line_and_column() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..8).for_each(|id| write(&src.join(format!("{id}.png")), &png(8, 9, id)));
    let text = "file,age,dose\n0.png,1,2\n1.png,old,2\n2.png,,2\n3.png,1,nan\n4.png,1,-inf\n5.png,1,1e39\n6.png,1\n0.png,1,3\n\
                7.png,1,2,3\n9.png,1,2\n";
    fs::write(src.join("table.csv"), text).unwrap();
    let list = src.join("table.csv");
    let error = convert("csv", &list, &temp.path("out"), &options(&["age", "dose"])).unwrap_err();
    let expected: [&[&str]; 9] = [
        &["line 3: ", "column `age`", "`old`"],
        &["line 4: ", "column `age`", "empty"],
        &["line 5: ", "column `dose`", "finite", "NaN"],
        &["line 6: ", "column `dose`", "-inf"],
        &["line 7: ", "column `dose`", "range of float32"],
        &["line 8: ", "column `dose`", "empty"],
        &["line 9: ", "0.png", "line 2", "other numbers"],
        &["line 10: ", "more fields"],
        &["line 11: ", "9.png", "not found"],
    ];
    assert_bad_lines(&error, "table.csv", "9 lines", &expected);
    let some = ConvertOptions { on_bad: OnBad::Skip, ..options(&["age", "dose"]) };
    let made = convert("csv", &list, &temp.path("some"), &some).unwrap();
    assert_eq!((made.skipped.len(), made.manifest.splits["train"].count), (9, 1));
    let missing = |targets: &[&str], parts: &[&str]| {
        mentions(convert("csv", &list, &temp.path("out"), &options(targets)).unwrap_err(), parts);
    };
    missing(&["age", "size", "mass"], &["table.csv", "line 1", "`size`, `mass`", "--targets", "file, age, dose"]);
    fs::write(&list, "0.png,1\n").unwrap();
    missing(&["age"], &["line 1", "`age`", "0.png, 1"]);
    fs::write(&list, "age,weight\n1,2\n").unwrap();
    missing(&["age"], &["column `path`"]);
    assert!(!temp.path("out").exists());
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let temp = Temp::new();
    let src = table(&temp);
    let refused = |kind: &str, src: &Path, options: ConvertOptions, parts: &[&str]| {
        let error = convert(kind, src, &temp.path("out"), &options).unwrap_err();
        assert!(error.is_usage(), "{error}");
        mentions(error, parts);
    };
    let folder = src.parent().unwrap();
    refused("csv", &src, options(&["weight", "weight"]), &["--targets", "`weight` twice"]);
    refused("csv", &src, options(&["weight", " "]), &["--targets", "empty name"]);
    let classes = ConvertOptions { classes: Some(src.clone()), ..options(&["weight"]) };
    refused("csv", &src, classes, &["--targets", "--classes"]);
    let separated = ConvertOptions { label_separator: Some('/'), ..options(&["weight"]) };
    refused("csv", &src, separated, &["--targets", "--label-separator"]);
    refused("folder", folder, options(&["weight"]), &["--targets", "folder without --labels"]);
    refused("recordio", folder, options(&["weight"]), &["--targets", "recordio", "csv", "webdataset"]);
    refused("mnist", folder, options(&["weight"]), &["--targets", "mnist"]);
    fs::write(folder.join("labels.json"), "{\"0.png\": [1]}").unwrap();
    let json = ConvertOptions { labels: Some(folder.join("labels.json")), ..options(&["weight"]) };
    refused("folder", folder, json, &["--targets", "JSON"]);
}

#[test]
fn arrays_with_numbers() {
    let temp = Temp::new();
    let src = temp.path("src");
    fs::create_dir_all(&src).unwrap();
    let images: Vec<u8> = (0..6 * 4 * 5).map(|i| (i * 7) as u8).collect();
    fs::write(src.join("x_train.npy"), npy("|u1", "6, 4, 5", &images)).unwrap();
    let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let all: Vec<f64> = (0..12).map(f64::from).collect();
    let convert_as = |out: &str, targets: &[&str]| convert("npz", &src, &temp.path(out), &options(targets));
    fs::write(src.join("y_train.npy"), npy("<f8", "6, 2", &bytes(&all))).unwrap();
    convert_as("two", &["a", "b"]).unwrap();
    assert_eq!(records(&temp.path("two"), "train")["x_train#4"], [8.0, 9.0]);
    // float32 in another byte order, and integers
    let big: Vec<u8> = (0..6).flat_map(|v| (v as f32 / 4.0).to_be_bytes()).collect();
    fs::write(src.join("y_train.npy"), npy(">f4", "6, 1", &big)).unwrap();
    convert_as("one", &["a"]).unwrap();
    assert_eq!(records(&temp.path("one"), "train")["x_train#3"], [0.75]);
    fs::write(
        src.join("y_train.npy"),
        npy("<i2", "6,", &(0..6i16).flat_map(|v| (-v).to_le_bytes()).collect::<Vec<u8>>()),
    )
    .unwrap();
    convert_as("whole", &["a"]).unwrap();
    assert_eq!(records(&temp.path("whole"), "train")["x_train#5"], [-5.0]);
    // without names, floats are refused, and the message recommends `--targets`
    fs::write(src.join("y_train.npy"), npy("<f8", "6, 2", &bytes(&all))).unwrap();
    mentions(convert_as("out", &["a"]).unwrap_err(), &["`y_train`", "[6, 2]", "(N) or (N, 1)", "--targets names 1"]);
    fs::write(src.join("y_train.npy"), npy("<f8", "6,", &bytes(&all[..6]))).unwrap();
    mentions(convert_as("out", &[]).unwrap_err(), &["`y_train`", "<f8", "integers", "--targets"]);
    let mut broken = all.clone();
    broken[7] = f64::NAN;
    fs::write(src.join("y_train.npy"), npy("<f8", "6, 2", &bytes(&broken))).unwrap();
    mentions(convert_as("out", &["a", "b"]).unwrap_err(), &["`x_train`: sample 3", "`b`", "finite", "NaN"]);
    let some = ConvertOptions { on_bad: OnBad::Skip, ..options(&["a", "b"]) };
    assert_eq!(convert("npz", &src, &temp.path("some"), &some).unwrap().manifest.splits["train"].count, 5);
    assert_eq!(records(&temp.path("some"), "train")["x_train#4"], [8.0, 9.0]);
}

/// The archives that `export` writes have the numbers in the JSON files.
#[test]
fn archives_with_numbers() {
    let (temp, targets) = (Temp::new(), ["angle, degrees", "weight"]);
    let (src, out) = (table(&temp), temp.path("out"));
    convert("csv", &src, &out, &options(&targets)).unwrap();
    export_webdataset(&out, &temp.path("tars"), 2, false).unwrap();
    convert("webdataset", &temp.path("tars"), &temp.path("back"), &options(&targets)).unwrap();
    let numbers_of = |dir: &Path, split: &str| {
        let mut all: Vec<Vec<f32>> = records(dir, split).into_values().collect();
        all.sort_by(|a, b| a[1].total_cmp(&b[1]));
        all
    };
    for split in ["train", "test"] {
        assert_eq!(numbers_of(&temp.path("back"), split), numbers_of(&out, split), "{split}");
    }
    assert_measured(&temp.path("back"), 0..40);
    // keys of the object itself, in another order, next to a class
    let archive = |texts: &[&str]| {
        let members = texts.iter().enumerate().flat_map(|(id, text)| {
            let image = (format!("{id}.png"), png(8, 9, id as u32));
            [image, (format!("{id}.cls"), b"3".to_vec()), (format!("{id}.json"), text.as_bytes().to_vec())]
        });
        let members: Vec<(String, Vec<u8>)> = members.filter(|(_, bytes)| !bytes.is_empty()).collect();
        write(&temp.path("train-000000.tar"), &tar("a", &members));
        temp.path("train-000000.tar")
    };
    let own = archive(&[r#"{"y": 2, "x": -1.5}"#, r#"{"x": 1e3, "y": 0, "label": 7}"#]);
    convert("webdataset", &own, &temp.path("own"), &options(&["x", "y"])).unwrap();
    let found: Vec<Vec<f32>> = records(&temp.path("own"), "train").into_values().collect();
    assert_eq!(found, [[-1.5, 2.0], [1000.0, 0.0]]);
    let bad =
        archive(&[r#"{"x": 1, "y": 1}"#, r#"{"x": 1}"#, r#"{"x": "two", "y": 1}"#, r#"{"x": 1e39, "y": 0}"#, "", "[]"]);
    let error = convert("webdataset", &bad, &temp.path("none"), &options(&["x", "y"])).unwrap_err();
    mentions(error, &["train-000000.tar", "sample `a/1`", "a/1.json", "no key `y`", "--targets", "4 more"]);
    let some = ConvertOptions { on_bad: OnBad::Skip, ..options(&["x", "y"]) };
    let made = convert("webdataset", &bad, &temp.path("some"), &some).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 1);
    let skipped = fs::read_to_string(temp.path("some/skipped.txt")).unwrap();
    for part in
        ["`x` is \"two\"; expected a number", "outside the range of float32", "4.json with `x`, `y` next to a/4.png"]
    {
        assert!(skipped.contains(part), "{skipped}");
    }
}

type RowGroup<'a> = SerializedRowGroupWriter<'a, fs::File>;

/// Writes the next column of a row group, with definition and repetition levels if it has them.
fn put<T: DataType>(group: &mut RowGroup<'_>, values: &[T::T], defined: Option<&[i16]>, repeated: Option<&[i16]>) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, defined, repeated).unwrap();
    column.close().unwrap();
}

/// Writes a Parquet table with one row group. A missing number is null.
fn parquet_table(path: &Path, rows: &[(i32, Option<f64>)]) {
    let schema = "message rows { required group image { required binary bytes; } required int32 count; \
                  optional double dose; required binary label (UTF8); repeated double list; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let images: Vec<ByteArray> = (0..rows.len() as u32).map(|id| png(8, 9, id).into()).collect();
    put::<ByteArrayType>(&mut group, &images, None, None);
    let counts: Vec<i32> = rows.iter().map(|row| row.0).collect();
    put::<Int32Type>(&mut group, &counts, None, None);
    let doses: Vec<f64> = rows.iter().filter_map(|row| row.1).collect();
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.1.is_some())).collect();
    put::<DoubleType>(&mut group, &doses, Some(&levels), None);
    let labels: Vec<ByteArray> = rows.iter().map(|_| "a".into()).collect();
    put::<ByteArrayType>(&mut group, &labels, None, None);
    // The lists are empty.
    let none = vec![0; rows.len()];
    put::<DoubleType>(&mut group, &[], Some(&none), Some(&none));
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_columns_with_numbers() {
    let temp = Temp::new();
    let src = temp.path("train-00000-of-00001.parquet");
    let rows: Vec<(i32, Option<f64>)> = (0..12).map(|id| (id - 5, Some(f64::from(id) / 7.0))).collect();
    parquet_table(&src, &rows);
    let made = convert("parquet", &src, &temp.path("out"), &options(&["dose", "count"])).unwrap();
    assert_eq!(made.to_json()["targets"][0]["name"], "dose");
    let mut found: Vec<Vec<f32>> = records(&temp.path("out"), "train").into_values().collect();
    found.sort_by(|a, b| a[1].total_cmp(&b[1]));
    let expected: Vec<[f32; 2]> = rows.iter().map(|row| [row.1.unwrap() as f32, row.0 as f32]).collect();
    assert_eq!(found, expected);
    let refused = |targets: &[&str], parts: &[&str]| {
        mentions(convert("parquet", &src, &temp.path("none"), &options(targets)).unwrap_err(), parts);
    };
    refused(&["mass"], &["train-00000-of-00001.parquet", "no column `mass` (--targets)", "dose"]);
    refused(&["label"], &["column `label` (--targets)", "BYTE_ARRAY", "a number per row"]);
    refused(&["list"], &["column `list` (--targets) contains lists"]);
    parquet_table(&src, &[(1, Some(0.5)), (2, None), (3, Some(f64::NAN)), (4, Some(1e39))]);
    refused(&["dose"], &["row 1", "column `dose`: the number is null"]);
    let some = ConvertOptions { on_bad: OnBad::Skip, ..options(&["dose"]) };
    let made = convert("parquet", &src, &temp.path("some"), &some).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 1);
    let skipped = fs::read_to_string(temp.path("some/skipped.txt")).unwrap();
    for part in ["row 2: column `dose`: expected a finite number, got NaN", "row 3: column `dose`: 1"] {
        assert!(skipped.contains(part), "{skipped}");
    }
}

/// A column's logical type says what its integers mean.
#[test]
fn parquet_columns_with_logical_types() {
    let temp = Temp::new();
    let src = temp.path("train-00000-of-00001.parquet");
    let schema = "message rows { required group image { required binary bytes; } required int32 large (UINT_32); \
                  required int64 price (DECIMAL(9, 2)); required int32 day (DATE); \
                  required int64 at (TIMESTAMP(NANOS, true)); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(&src).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    put::<ByteArrayType>(&mut group, &[png(8, 9, 1).into()], None, None);
    put::<Int32Type>(&mut group, &[-2], None, None);
    put::<Int64Type>(&mut group, &[1234], None, None);
    put::<Int32Type>(&mut group, &[20_000], None, None);
    put::<Int64Type>(&mut group, &[1], None, None);
    group.close().unwrap();
    writer.close().unwrap();
    convert("parquet", &src, &temp.path("out"), &options(&["large"])).unwrap();
    let found: Vec<Vec<f32>> = records(&temp.path("out"), "train").into_values().collect();
    assert_eq!(found, [[4_294_967_294_u32 as f32]]);
    for (name, kind) in [("price", "DECIMAL"), ("day", "DATE"), ("at", "times")] {
        let error = convert("parquet", &src, &temp.path("none"), &options(&[name])).unwrap_err();
        mentions(error, &[&format!("column `{name}` (--targets)"), kind, "cast the column to DOUBLE"]);
    }
}

#[test]
fn other_commands_keep_and_measure_the_numbers() {
    let temp = Temp::new();
    let (src, out) = (table(&temp), temp.path("out"));
    convert("csv", &src, &out, &options(&["angle, degrees", "weight"])).unwrap();
    mentions(info(&out).unwrap(), &["2 targets", "target angle, degrees: ", " 4.375", "target weight: mean 1000019.5"]);
    let measured = stats(&out, "train", 2).unwrap();
    mentions(&measured, &["angle, degrees: ", "mean 4.375000, std 14.4", "from -20 to 28.75"]);
    assert_eq!(measured.to_json()["targets"][1]["max"], 1_000_039.0);
    let mut spoilt = Dataset::open(&out).unwrap().manifest;
    spoilt.targets[0].mean = 7.0;
    fs::remove_file(out.join("dataset.json")).unwrap();
    mentions(index(&out).unwrap_err(), &["numbers", "dataset.json", "copy it"]);
    spoilt.write(&out).unwrap();
    stats(&out, "train", 1).unwrap().write().unwrap();
    assert_measured(&out, 0..40);
    let reshape = ReshapeOptions { shards: 2, progress: false, ..ReshapeOptions::default() };
    reshard(&out, &temp.path("reshard"), true, &reshape).unwrap();
    assert_eq!(records(&temp.path("reshard"), "train"), records(&out, "train"));
    assert_measured(&temp.path("reshard"), 0..40);
    split(&out, &temp.path("split"), "train", "validation", Share::Fraction(0.25), &reshape).unwrap();
    let [train, drawn] = ["train", "validation"].map(|name| records(&temp.path("split"), name));
    assert_eq!((train.len(), drawn.len()), (30, 10));
    let id = |name: &String| name.trim_end_matches(".png").parse::<u32>().unwrap();
    assert_measured(&temp.path("split"), train.keys().map(id).collect::<Vec<_>>().into_iter());
    sample(&out, &temp.path("sample"), Share::Fraction(0.5), &reshape).unwrap();
    assert_eq!(records(&temp.path("sample"), "train").len(), 20);
    let each = sample(&out, &temp.path("none"), Share::PerClass(2), &reshape).unwrap_err();
    mentions(each, &["angle, degrees, weight", "fraction"]);
    merge(&[&out, &temp.path("split")], &temp.path("merged"), &reshape).unwrap();
    assert_eq!(records(&temp.path("merged"), "train").len(), 40);
    convert("csv", &src, &temp.path("other"), &options(&["weight"])).unwrap();
    let other = merge(&[&out, &temp.path("other")], &temp.path("none"), &reshape).unwrap_err();
    mentions(other, &["angle, degrees, weight", "the numbers weight", "same kind"]);
    export_webdataset(&out, &temp.path("tar"), 1, false).unwrap();
    assert_eq!(fs::read_to_string(temp.path("tar/targets.txt")).unwrap(), "angle, degrees\nweight\n");
    let shard = fs::read(temp.path("tar/test-000000.tar")).unwrap();
    let text = String::from_utf8_lossy(&shard);
    assert!(text.contains("\"targets\":{\"angle, degrees\":") && !text.contains(".cls"), "{text}");
    mentions(extract(&out, "test", 0, &temp.path("0.png")).unwrap(), &["angle, degrees ", "; weight 10000"]);
    // a record that another program has changed
    let mut manifest = Dataset::open(&out).unwrap().manifest;
    manifest.targets.pop();
    manifest.write(&out).unwrap();
    mentions(verify(&out, 1).unwrap(), &["48 faults", "2 numbers in image/targets; expected 1"]);
}
