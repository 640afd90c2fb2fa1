//! Tests WebDataset archives, tables and NumPy arrays: the result of their conversion, and messages about invalid ones.

use crate::bands::npy;
use crate::common::pictures::*;
use crate::common::{self, Temp, assert_bad_lines, options, skipping, tar, write_files};
use data_tools::{ConvertOptions, Error, OnBad, convert, export_webdataset, verify};
use loaders::Limits;
use std::fs;
use std::path::Path;
use support::mentions;
use tar::{Builder, EntryType, Header};

const CLASSES: [&str; 3] = ["cat", "dog", "fox"];

#[track_caller]
fn refused(kind: &str, src: &Path, parts: &[&str]) -> Error {
    common::refused(kind, src, &options(), parts)
}

/// Returns the expected images in a split of the sources in `tests/data`.
fn expected(names: impl Fn(usize) -> String, classes: [&str; 3], count: usize) -> Vec<Image> {
    (0..count).map(|i| Image { name: names(i), class: classes[i % 3].to_string(), pixels: pixels(i) }).collect()
}

#[test]
fn archives_of_webdataset() {
    let temp = Temp::new();
    let src = temp.path("src");
    for split in ["train", "val"] {
        let bytes = fs::read(file(&format!("wds-{split}-000000.tar"))).unwrap();
        write(&src.join(format!("{split}-000000.tar")), &bytes);
    }
    let out = temp.path("numbers");
    let made = convert("webdataset", &src, &out, &options()).unwrap();
    assert_eq!(made.manifest.classes, ["0", "1", "2"]);
    assert_eq!(images(&out, "train"), expected(|i| format!("train/{i:04}.png"), ["0", "1", "2"], 7));
    assert_eq!(images(&out, "validation"), expected(|i| format!("val/{i:04}.png"), ["0", "1", "2"], 3));
    assert!(verify(&out, 1).unwrap().is_ok());
    // Class names may be in a file next to the archives, and SRC may be a single archive.
    write(&src.join("classes.txt"), b"cat\ndog\nfox\n");
    convert("webdataset", &src, &temp.path("names"), &options()).unwrap();
    assert_eq!(images(&temp.path("names"), "train"), expected(|i| format!("train/{i:04}.png"), CLASSES, 7));
    convert("webdataset", &src.join("train-000000.tar"), &temp.path("one"), &options()).unwrap();
    assert_eq!(images(&temp.path("one"), "train"), expected(|i| format!("train/{i:04}.png"), CLASSES, 7));
}

fn members(list: &[(&str, &[u8])]) -> Vec<u8> {
    let files: Vec<(String, Vec<u8>)> = list.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
    tar("s", &files)
}

#[test]
fn labels_in_json_and_names_as_labels() {
    let temp = Temp::new();
    let (a, b) = (png(9, 9, 1), jpeg(9, 9, 2));
    let list: [(&str, &[u8]); 5] = [
        ("0.png", &a),
        ("0.json", br#"{"label": null, "cls": "dog"}"#),
        ("1.jpg", &b),
        ("1.cls", b"cat\n"),
        ("__x__", b""),
    ];
    write(&temp.path("t.tar"), &members(&list));
    let made = convert("webdataset", &temp.path("t.tar"), &temp.path("out"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    let classes: Vec<String> = images(&temp.path("out"), "train").into_iter().map(|i| i.class).collect();
    assert_eq!(classes, ["dog", "cat"]);
    // A byte order mark, as some editors write, is not part of the text.
    let (json, cat) = ("\u{feff}{\"label\": \"dog\"}", "\u{feff}cat\r\n");
    let marked: [(&str, &[u8]); 4] =
        [("0.png", &a), ("0.json", json.as_bytes()), ("1.jpg", &b), ("1.cls", cat.as_bytes())];
    write(&temp.path("marked.tar"), &members(&marked));
    let made = convert("webdataset", &temp.path("marked.tar"), &temp.path("marked"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
}

/// If class names are numbers, a `.cls` still contains an index, so images keep their classes.
#[test]
fn exported_archives_of_classes_named_by_numbers_are_read_again() {
    let temp = Temp::new();
    for (salt, class) in (0u32..).zip(["1", "2", "2", "10", "10", "10"]) {
        write(&temp.path(&format!("src/{class}/{salt}.png")), &png(9, 9, salt));
    }
    write(&temp.path("classes.txt"), b"1\n2\n10\n");
    let listed = ConvertOptions { classes: Some(temp.path("classes.txt")), ..options() };
    convert("folder", &temp.path("src"), &temp.path("out"), &listed).unwrap();
    export_webdataset(&temp.path("out"), &temp.path("tars"), 1, false).unwrap();
    let again = convert("webdataset", &temp.path("tars"), &temp.path("again"), &options()).unwrap();
    assert_eq!(again.manifest.classes, ["1", "2", "10"]);
    let found = |out: &str| {
        let mut found: Vec<(String, Vec<u8>)> =
            images(&temp.path(out), "train").into_iter().map(|image| (image.class, image.pixels)).collect();
        found.sort();
        found
    };
    assert_eq!(found("again"), found("out"));
}

/// If one label is not a number, the other labels are names too.
#[test]
fn archives_whose_labels_are_names_may_have_names_that_are_numbers() {
    let temp = Temp::new();
    let image = png(9, 9, 1);
    let classes: Vec<String> = (0..30).map(|at| if at == 3 { "stop".into() } else { format!("{}", 40 - at) }).collect();
    write(&temp.path("classes.txt"), classes.join("\n").as_bytes());
    let listed = ConvertOptions { classes: Some(temp.path("classes.txt")), ..options() };
    let counted = |labels: [&[u8]; 2]| {
        let path = temp.path("t.tar");
        write(&path, &members(&[("0.png", &image), ("0.cls", labels[0]), ("1.png", &image), ("1.cls", labels[1])]));
        let out = temp.path(&format!("out-{}", String::from_utf8_lossy(labels[1])));
        convert("webdataset", &path, &out, &listed).unwrap();
        let mut found: Vec<String> = images(&out, "train").into_iter().map(|image| image.class).collect();
        found.sort();
        found
    };
    assert_eq!(counted([b"20", b"stop"]), ["20", "stop"]);
    // If all labels are numbers, they are indices from 0.
    assert_eq!(counted([b"20", b"3"]), ["20", "stop"]);
    assert_eq!(counted([b"21", b"4"]), ["19", "36"]);
}

#[test]
fn bad_archives_name_member_and_cure() {
    let temp = Temp::new();
    let path = temp.path("t.tar");
    let image = png(9, 9, 1);
    let with = |list: &[(&str, &[u8])]| write(&path, &members(list));
    with(&[("0.png", &image), ("1.png", &image), ("1.cls", b"1"), ("0.cls", b"0")]);
    refused("webdataset", &path, &["t.tar: ", "member 4 at byte", "s/0.cls", "--sort=name"]);
    with(&[("0.png", &image), ("0.cls", b"0"), ("1.png", &image)]);
    refused(
        "webdataset",
        &path,
        &["t.tar: ", "sample `s/1`", "member 3 at byte", "no label", "s/1.cls", "--on-bad skip"],
    );
    let made = convert("webdataset", &path, &temp.path("skipped"), &skipping()).unwrap();
    assert!(made.manifest.splits["train"].count == 1 && made.skipped[0].contains("s/1"), "{made}");
    with(&[("0.cls", b"0"), ("1.png", &image), ("1.cls", b"0")]);
    refused("webdataset", &path, &["sample `s/0`", "member 1 ", "no image"]);
    with(&[("0.png", &image), ("0.jpg", &image), ("0.cls", b"0")]);
    refused("webdataset", &path, &["sample `s/0`", "s/0.png and s/0.jpg"]);
    with(&[("0.png", &image), ("0.cls", b" ")]);
    refused("webdataset", &path, &["s/0.cls: ", "empty"]);
    with(&[("0.png", &image), ("0.cls", b"1"), ("1.png", &image), ("1.cls", b"cat")]);
    refused("webdataset", &path, &["numbers and names", "1 and `cat`"]);
    let whole = fs::read(&path).unwrap();
    write(&path, &whole[..whole.len() - 1600]);
    refused("webdataset", &path, &["t.tar: cut short"]);
    write(&path, b"not a tar archive, but long enough to be one: ".repeat(30).as_slice());
    refused("webdataset", &path, &["not a tar archive"]);
}

/// GNU tar stores a file's second name as a link without content.
#[test]
fn links_in_archives_are_refused_if_they_stand_for_files() {
    let temp = Temp::new();
    let path = temp.path("t.tar");
    let image = png(9, 9, 1);
    let with_link = |kind: EntryType, name: &str| {
        let (mut archive, mut header) = (Builder::new(Vec::new()), Header::new_gnu());
        header.set_entry_type(kind);
        header.set_size(0);
        archive.append_link(&mut header, name, "s/0.cls").unwrap();
        // Archives may be concatenated.
        write(&path, &[members(&[("0.png", &image), ("0.cls", b"0")]), archive.into_inner().unwrap()].concat());
    };
    with_link(EntryType::Link, "s/1.cls");
    refused("webdataset", &path, &["t.tar: ", "s/1.cls is a link", "tar --hard-dereference"]);
    with_link(EntryType::Symlink, "s/1.png");
    refused("webdataset", &path, &["t.tar: ", "s/1.png is a link", "tar --dereference"]);
    for (kind, name) in [(EntryType::Symlink, "README.md"), (EntryType::Link, "s/1.txt")] {
        with_link(kind, name);
        let made = convert("webdataset", &path, &temp.path(name), &options()).unwrap();
        assert_eq!(made.manifest.splits["train"].count, 1, "{name}");
    }
}

/// Writes the files a.png to c.png and a table.
fn table(temp: &Temp, text: &str) -> std::path::PathBuf {
    for (salt, name) in ["a", "b", "c"].iter().enumerate() {
        write(&temp.path(&format!("src/{name}.png")), &png(9, 9, salt as u32));
    }
    write_files(&temp.path("src"), &[("labels.csv".into(), text.as_bytes().to_vec())]);
    temp.path("src/labels.csv")
}

#[test]
fn tables() {
    let temp = Temp::new();
    let src = table(&temp, "\u{feff}split,filename,label\ntrain,a.png,cat\nval,\"b.png\",dog\ntrain,c.png,dog\n");
    let made = convert("csv", &src, &temp.path("a"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    let found = |out: &str, split: &str| -> Vec<(String, String)> {
        images(&temp.path(out), split).into_iter().map(|i| (i.name, i.class)).collect()
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(found("a", "train"), [pair("a.png", "cat"), pair("c.png", "dog")]);
    assert_eq!(found("a", "validation"), [pair("b.png", "dog")]);
    // A table may have no header, tabs as separators, and numbers as labels.
    let src = table(&temp, "a.png\t1\nb.png\t0\nc.png\t1\n");
    let made = convert("csv", &src, &temp.path("b"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["0", "1"]);
    assert_eq!(found("b", "train")[0], pair("a.png", "1"));
    // A validation split can be drawn, and options for image files apply.
    let more = ConvertOptions { validation_fraction: Some(0.5), resize: Some(4), ..options() };
    let src = table(&temp, "path;class\na.png;x\nb.png;x\n");
    assert_eq!(convert("csv", &src, &temp.path("c"), &more).unwrap().manifest.splits.len(), 2);
}

/// If the listed classes have numbers as names, texts are names too, even with a leading 0.
#[test]
fn numbers_in_a_table_with_a_list_of_numbers() {
    let temp = Temp::new();
    write(&temp.path("classes.txt"), b"01\n02\n03\n04\n");
    let listed = ConvertOptions { classes: Some(temp.path("classes.txt")), ..options() };
    let classes = |out: &str, text: &str, options: &ConvertOptions| -> Vec<String> {
        convert("csv", &table(&temp, text), &temp.path(out), options).unwrap();
        images(&temp.path(out), "train").into_iter().map(|image| image.class).collect()
    };
    let text = "path,label\na.png,01\nb.png,02\nc.png,03\n";
    assert_eq!(classes("named", text, &listed), ["01", "02", "03"]);
    assert_eq!(classes("alone", text, &options()), ["1", "2", "3"]);
    let error = convert("csv", &table(&temp, "a.png,1\nb.png,02\n"), &temp.path("out"), &listed).unwrap_err();
    assert_bad_lines(&error, "labels.csv", "1 line", &[&["line 1: label `1`", "4 classes"]]);
}

#[test]
fn bad_lines_of_a_table_are_all_named() {
    let temp = Temp::new();
    let src = table(
        &temp,
        "path,label\na.png,cat\nmissing.png,cat\n\nb.png,dgo\nc.png,\nb.png,cat,\nb.png,cat,extra\ngone.png,dog\n",
    );
    write(&temp.path("classes.txt"), b"cat\ndog\n");
    let given = ConvertOptions { classes: Some(temp.path("classes.txt")), ..options() };
    let error = convert("csv", &src, &temp.path("out"), &given).unwrap_err();
    let expected: [&[&str]; 5] = [
        &["line 3: ", "missing.png", "not found"],
        &["line 5: label `dgo`", "2 classes", "\"dog\""],
        &["line 6: ", "no label"],
        &["line 8: ", "more fields"],
        &["line 9: ", "gone.png", "not found"],
    ];
    assert_bad_lines(&error, "labels.csv", "5 lines", &expected);
    mentions(&error, &["--on-bad skip"]);
    let skip = ConvertOptions { on_bad: OnBad::Skip, ..given };
    let made = convert("csv", &src, &temp.path("out"), &skip).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (2, 5), "{made}");
    refused("csv", &table(&temp, "image_path,caption\na.png,hello\n"), &["no column `label`", "caption"]);
    refused("csv", &table(&temp, ""), &["labels.csv: ", "empty"]);
    // An unclosed quote would make everything after it one field.
    for (line, open) in [(3, "b.png,\"dog\na.png,cat\n"), (4, "a.png,\"cat\"\n\"b.png,dog\n")] {
        let text = format!("path,label\na.png,cat\n{open}");
        refused("csv", &table(&temp, &text), &[&format!("line {line}: "), "never closed"]);
    }
    // The quote is closed by the next one, many lines below.
    let swallows = "path,label\na.png,\"cat\nb.png,\"dog\"\na.png,cat\n";
    refused("csv", &table(&temp, swallows), &["line 2: ", "\"cat\"", "next line"]);
    // A quoted line break is allowed in a column that is not read.
    let captions = table(&temp, "path,label,caption\na.png,cat,\"two\nlines\"\nb.png,dog,one\n");
    assert_eq!(
        convert("csv", &captions, &temp.path("captions"), &options()).unwrap().manifest.splits["train"].count,
        2
    );
    refused("csv", &table(&temp, "path,label,split\na.png,cat,3\n"), &["line 2: split `3`"]);
    fs::write(temp.path("src/labels.csv"), b"path,label\na.png,caf\xe9\n").unwrap();
    refused("csv", &temp.path("src/labels.csv"), &["line 2: ", "not UTF-8"]);
}

/// Many short lines, long lines and many labels need much more memory than their text. They are rejected before they
/// use it.
#[test]
fn lists_that_would_take_too_much_memory() {
    let temp = Temp::new();
    let little = ConvertOptions { limits: Limits::with_memory(1 << 20), ..options() };
    let refused = |kind: &str, src: &Path, options: &ConvertOptions, parts: &[&str]| {
        mentions(convert(kind, src, &temp.path("out"), options).unwrap_err(), parts);
    };
    let limit = ["(1 MiB plus four times", "size", "--limit-memory"];
    // The limit applies to lines with little content, labels that occur only once, and messages about skipped lines.
    let text = |line: &dyn Fn(usize) -> String| (0..60_000).map(line).collect::<String>();
    refused("csv", &table(&temp, &text(&|_| "a.png,x\n".into())), &little, &limit);
    refused(
        "csv",
        &table(&temp, &text(&|i| format!("a.png,a much longer label, which alone is no problem {i}\n"))),
        &little,
        &limit,
    );
    let skip = ConvertOptions { on_bad: OnBad::Skip, ..little.clone() };
    refused("csv", &table(&temp, &text(&|i| format!("a/path/that/leads/nowhere/{i}.png,x\n"))), &skip, &limit);
    // Lines of usual length fit.
    let usual = table(&temp, &"a.png,x,train\n".repeat(5_000));
    assert_eq!(convert("csv", &usual, &temp.path("usual"), &little).unwrap().manifest.splits["train"].count, 5_000);
    // If there are many faults, only the first ones are shown.
    let missing = table(&temp, &text(&|i| format!("m{i},x\n")));
    refused("csv", &missing, &options(), &["60,000 lines", "line 1000: ", "59,000 more"]);
    let wide = table(&temp, &format!("a.png,x\n{}\n", ",".repeat(200_000)));
    refused("csv", &wide, &options(), &["line 2: ", "100000 fields"]);
    let long = table(&temp, &format!("path,labels\na.png,{}\n", "x;".repeat(600_000)));
    refused("csv", &long, &options(), &["line 2: ", "1048577 bytes", "at most 1048576"]);
    let list = temp.path("labels.json");
    let labels = |text: String| {
        write(&list, text.as_bytes());
        ConvertOptions { labels: Some(list.clone()), ..little.clone() }
    };
    let images = temp.path("src");
    refused("folder", &images, &labels(format!("{{\"a.png\": [{}0]}}", "0,".repeat(600_000))), &["a list of 12"]);
    let many = (0..60_000).map(|_| "\"a.png\":1".to_string()).collect::<Vec<_>>().join(",");
    refused("folder", &images, &labels(format!("{{{many}}}")), &limit);
    // Each member of this archive has a hundred thousand labels.
    let json = format!("{{\"labels\": [{}0]}}", "0,".repeat(100_000));
    let png = fs::read(images.join("a.png")).unwrap();
    let members =
        (0..8).flat_map(|i| [(format!("{i}.json"), json.clone().into_bytes()), (format!("{i}.png"), png.clone())]);
    write(&temp.path("train.tar"), &tar("x", &members.collect::<Vec<_>>()));
    refused("webdataset", &temp.path("train.tar"), &little, &limit);
}

/// An image has one label and one split. A line that repeats them is counted.
#[test]
fn a_table_that_contradicts_itself() {
    let temp = Temp::new();
    let src =
        table(&temp, "path,label,split\na.png,cat,\nb.png,dog,train\na.png,dog,train\n./b.png,dog,val\nb.png,dog,\n");
    let expected: [&[&str]; 2] =
        [&["line 4: a.png", "on line 2", "label `cat`"], &["line 5: ./b.png", "on line 3", "split train"]];
    assert_bad_lines(&refused("csv", &src, &[]), "labels.csv", "2 lines", &expected);
    let made = convert("csv", &src, &temp.path("out"), &skipping()).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 3);
    assert_eq!((made.skipped.len(), made.notes.len()), (2, 1));
    assert!(made.notes[0].starts_with("1 line "), "{made}");
    mentions(&made.notes[0], &["same image"]);
}

#[test]
fn arrays_of_numpy() {
    let temp = Temp::new();
    let out = temp.path("out");
    let made = convert("npz", &file("arrays.npz"), &out, &options()).unwrap();
    assert_eq!(made.manifest.classes, ["0", "1", "2"]);
    assert_eq!(images(&out, "train"), expected(|i| format!("x_train#{i}"), ["0", "1", "2"], 7));
    let test = images(&out, "test");
    assert_eq!((test.len(), test[1].class.as_str()), (2, "1"));
    let red: Vec<u8> = pixels(1).chunks(3).map(|pixel| pixel[0]).collect();
    assert_eq!(test[1].pixels, red);
    write(&temp.path("classes.txt"), b"cat\ndog\nfox\n");
    let named = ConvertOptions { classes: Some(temp.path("classes.txt")), ..options() };
    convert("npz", &file("arrays.npz"), &temp.path("named"), &named).unwrap();
    assert_eq!(images(&temp.path("named"), "train")[1].class, "dog");
    let resized = ConvertOptions { resize: Some(8), ..options() };
    let error = convert("npz", &file("arrays.npz"), &temp.path("x"), &resized).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["--resize ", "npz"]);
}

fn npz(path: &Path, arrays: &[(&str, Vec<u8>)]) {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn bad_arrays_are_named() {
    let temp = Temp::new();
    let path = temp.path("a.npz");
    let images = || npy("|u1", "2, 2, 2", &[7; 8]);
    let labels = || npy("<i8", "2,", &[0; 16]);
    let with = |arrays: &[(&str, Vec<u8>)], parts: &[&str]| {
        npz(&path, arrays);
        refused("npz", &path, parts);
    };
    with(&[("x", images())], &["a.npz: ", "no array", "labels of train"]);
    with(&[("weights", images())], &["a.npz: ", "only weights"]);
    with(
        &[("x", npy("<f8", "1, 1, 2", &[0; 16])), ("y", npy("|u1", "1,", &[0]))],
        &["`x`: ", "<f8", "astype('float32')"],
    );
    with(&[("x", images()), ("y", npy("<i8", "1,", &[0; 8]))], &["`x` has 2 images", "`y` has 1 labels"]);
    with(&[("x", images()), ("y", npy("|u1", "2, 3", &[0; 6]))], &["`y`: ", "[2, 3]", "argmax"]);
    with(&[("x", npy("|u1", "2, 2, 2, 2", &[7; 16])), ("y", labels())], &["`x`: ", "[2, 2, 2]", "--layout"]);
    with(&[("x", npy("|u1", "9, 2, 2", &[7; 8])), ("y", labels())], &["`x`: ", "[9, 2, 2]", "|u1", "8 bytes"]);
    let pair = |part: &str| [(format!("x_{part}"), images()), (format!("y_{part}"), labels())];
    let parts = |parts: &[&str]| {
        let arrays: Vec<(String, Vec<u8>)> = parts.iter().flat_map(|part| pair(part)).collect();
        let arrays: Vec<(&str, Vec<u8>)> = arrays.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        npz(&path, &arrays);
    };
    // Arrays that are neither images nor labels may have any type.
    npz(&path, &[("x", images()), ("y", labels()), ("class_names", npy("<U10", "1,", &[0; 40]))]);
    convert("npz", &path, &temp.path("texts"), &options()).unwrap();
    parts(&["train", "extra"]);
    refused("npz", &path, &["a.npz: `extra`", "extra, train", "--split-map extra=validation"]);
    parts(&["train", "eval", "extra"]);
    let mapped = ConvertOptions { split_map: vec![("extra".into(), "none".into())], ..options() };
    let made = convert("npz", &path, &temp.path("eval"), &mapped).unwrap();
    assert_eq!(made.manifest.splits.keys().collect::<Vec<_>>(), ["train", "validation"]);
    fs::write(&path, b"no archive").unwrap();
    refused("npz", &path, &["a.npz: ", "not a NumPy"]);
    let whole = fs::read(file("arrays.npz")).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused("npz", &path, &["a.npz: ", "damaged", "fetch"]);
}
