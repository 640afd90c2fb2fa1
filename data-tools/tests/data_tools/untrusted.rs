//! Tests malicious and damaged files. Decoders panic, page headers ask for gigabytes, small inputs expand to large outputs. Names are very
//! long or contain line breaks that imitate messages.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, OnBad, convert, info, stats, verify};
use loaders::{Dataset, Manifest};
use std::fs;
use std::path::Path;
use support::mentions;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 1, progress: false, ..ConvertOptions::default() }
}

/// Writes two class folders, each with a picture.
fn pictures(src: &Path) {
    write(&src.join("a/0.png"), &png(9, 7, 1));
    write(&src.join("b/1.png"), &png(9, 7, 2));
}

/// The TIFF decoder panics on this file because its tiles are stored in separate colour planes.
#[test]
fn a_decoder_that_panics_fails_for_its_file_alone() {
    let temp = Temp::new();
    let src = temp.path("src");
    pictures(&src);
    let tiff = case("tiff-planar").join("tiff_tiled_planar_16bit_RGB.tiff");
    fs::copy(tiff, src.join("b/planar.tiff")).unwrap();
    let message = convert("folder", &src, &temp.path("out"), &options()).unwrap_err().to_string();
    assert!(message.contains("b/planar.tiff: "), "{message}");
    let skip = ConvertOptions { on_bad: OnBad::Skip, ..options() };
    let made = convert("folder", &src, &temp.path("out"), &skip).unwrap();
    assert!(made.skipped.len() == 1 && made.skipped[0].contains("b/planar.tiff: "), "{:?}", made.skipped);
    assert_eq!(made.manifest.splits["train"].count, 2);
}

#[test]
fn pages_of_parquet_that_ask_for_more_than_they_hold_are_named() {
    let temp = Temp::new();
    for (name, parts) in [
        ("dict-num-values", &["column `image`", "row group 0 "][..]),
        ("dict-num-values-2p27", &["134217728 dictionary values", "at most 2762"]),
        ("uncompressed-page-size", &["page 0 at byte 4: ", "4439 bytes", "2147483647"]),
        ("a", &["column of labels", "row group 0 "]),
        ("b", &["column `image`", "row group 0 "]),
    ] {
        let src = case("parquet-pages").join(name).with_extension("parquet");
        let error = convert("parquet", &src, &temp.path("out"), &options()).unwrap_err();
        mentions(&error, &[&format!("{name}.parquet: ")]);
        mentions(&error, parts);
    }
}

#[test]
fn shards_take_no_more_than_is_allowed() {
    let temp = Temp::new();
    let src = temp.path("t.csv");
    write(&temp.path("0.png"), &png(40, 40, 1));
    fs::write(&src, "path,label\n".to_string() + &"0.png,a\n".repeat(300)).unwrap();
    let limited = |most| ConvertOptions { max_output: Some(most), ..options() };
    let error = convert("csv", &src, &temp.path("out"), &limited(1000)).unwrap_err();
    mentions(error, &[" 1000 bytes", "--max-output"]);
    let made = convert("csv", &src, &temp.path("out"), &limited(100 << 20)).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 300);
    assert!(made.bytes > 100_000);
    let again = limited(made.bytes - 1);
    assert!(
        convert("tfrecord", &temp.path("out"), &temp.path("copy"), &again)
            .unwrap_err()
            .to_string()
            .contains("--max-output")
    );
    convert("tfrecord", &temp.path("out"), &temp.path("copy"), &limited(made.bytes)).unwrap();
}

#[test]
fn long_names_of_classes_are_cut_in_tables() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    pictures(&src);
    convert("folder", &src, &out, &options()).unwrap();
    let mut manifest = Manifest::read(&out).unwrap();
    manifest.classes = (0..40_000).map(|i| format!("c{i}")).collect();
    manifest.classes[3] = "y".repeat(70_000);
    manifest.write(&out).unwrap();
    for text in [stats(&out, "train", 1).unwrap().to_string(), info(&out).unwrap().to_string()] {
        assert!(text.contains(&("y".repeat(60) + "...")) && !text.contains(&"y".repeat(61)), "{}", text.len());
        assert!(text.len() < 40_000 * 120, "{}", text.len());
    }
}

/// A name that starts a fake line, reverses the text direction and returns to the line's start.
const FORGED: &str = "x\nFAKE done\r\u{202e}\u{85}y";

/// Asserts that a text contains no control characters and no line that starts with the fake name.
#[track_caller]
fn is_clean(text: &str) {
    let lines = text.lines().all(|line| !line.starts_with("FAKE"));
    let hidden = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(lines && !text.contains(hidden), "{text:?}");
}

/// Names and contents of files.
type NamedFiles = Vec<(String, Vec<u8>)>;

#[test]
fn forged_names_stay_on_their_line() {
    let temp = Temp::new();
    let photo = png(9, 7, 3);
    let file = format!("{FORGED}.png");
    let sources: [(&str, &str, NamedFiles); 8] = [
        ("folder", "", vec![(format!("{FORGED}/a.png"), b"no image".to_vec()), (format!("b/{file}"), photo.clone())]),
        (
            "folder",
            "",
            vec![(format!("a/{file}"), b"no image".to_vec()), (format!("b/{file}"), b"\x89PNG\r\n\x1a\n".to_vec())],
        ),
        ("csv", "t.csv", vec![("t.csv".into(), format!("path,label\n\"{file}\",a\n").into_bytes())]),
        ("csv", "t.csv", vec![("t.csv".into(), format!("\"{FORGED}\",\"{FORGED}2\",l\n").into_bytes())]),
        (
            "csv",
            "t.jsonl",
            vec![("t.jsonl".into(), format!("{{\"image\": {:?}, \"label\": 1}}", "x\nFAKE").into_bytes())],
        ),
        (
            "webdataset",
            "",
            vec![(
                format!("{FORGED}-train-0.tar"),
                tar("s", &[(format!("{FORGED}.png"), photo.clone()), (format!("{FORGED}.cls"), b"x\nFAKE".to_vec())]),
            )],
        ),
        ("npz", "a.npz", vec![("a.npz".into(), stored_zip(&format!("{FORGED}.npy"), b"\x93NUMPY"))]),
        ("tfrecord", "", vec![(format!("{FORGED}-00000-of-00001.tfrecord"), b"no record".to_vec())]),
    ];
    for (number, (kind, name, files)) in sources.into_iter().enumerate() {
        let dir = temp.path(&number.to_string());
        files.iter().for_each(|(name, bytes)| write(&dir.join(name), bytes));
        let src = if name.is_empty() { dir } else { dir.join(name) };
        for on_bad in [OnBad::Fail, OnBad::Skip] {
            let out = temp.path(&format!("out-{number}-{FORGED}-{on_bad:?}"));
            match convert(kind, &src, &out, &ConvertOptions { on_bad, ..options() }) {
                Err(error) => is_clean(&error.to_string()),
                Ok(made) => {
                    is_clean(&made.to_string());
                    made.skipped.iter().for_each(|line| assert!(!line.contains('\n'), "{line:?}"));
                }
            }
        }
    }
    let (src, out) = (temp.path("src"), temp.path(&format!("good {FORGED}")));
    write(&src.join(FORGED).join(&file), &photo);
    write(&src.join("b").join(&file), &photo);
    is_clean(&convert("folder", &src, &out, &options()).unwrap().to_string());
    is_clean(&info(&out).unwrap().to_string());
    is_clean(&stats(&out, "train", 1).unwrap().to_string());
    let shard = out.join(&Manifest::read(&out).unwrap().splits["train"].shards[0].file);
    let mut bytes = fs::read(&shard).unwrap();
    let at = bytes.len() - 9;
    bytes[at] ^= 1;
    fs::write(&shard, bytes).unwrap();
    is_clean(&verify(&out, 1).unwrap().to_string());
    is_clean(&Dataset::open(temp.path(FORGED)).unwrap_err().to_string());
}

/// Builds a ZIP archive with a single uncompressed member.
fn stored_zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let (length, named) = (bytes.len() as u32, name.len() as u16);
    let fields = [
        &[20, 0, 0, 8, 0, 0, 0, 0, 0, 0][..],
        &crc32(bytes).to_le_bytes(),
        &length.to_le_bytes(),
        &length.to_le_bytes(),
        &named.to_le_bytes(),
        &[0, 0],
    ]
    .concat();
    let local = [b"PK\x03\x04", &fields[..], name.as_bytes(), bytes].concat();
    let central = [b"PK\x01\x02\x14\0", &fields[..], &[0; 14], name.as_bytes()].concat();
    let (size, start) = (central.len() as u32, local.len() as u32);
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &size.to_le_bytes()[..], &start.to_le_bytes(), &[0, 0]].concat();
    [local, central, end].concat()
}

#[test]
fn a_list_names_files_of_its_folder_alone() {
    let temp = Temp::new();
    write(&temp.path("t/a.png"), &png(9, 7, 1));
    write(&temp.path("private/b.png"), &png(9, 7, 2));
    let absolute = temp.path("private/b.png").display().to_string();
    for (number, path) in
        ["../private/b.png", &absolute, "./x/../../private/b.png", "..\\private\\b.png"].into_iter().enumerate()
    {
        let json = path.replace('\\', "\\\\");
        for (kind, name, text) in [
            ("csv", "t.csv", format!("path,label\na.png,x\n{path},y\n")),
            (
                "csv",
                "t.jsonl",
                format!("{{\"path\": \"a.png\", \"label\": \"x\"}}\n{{\"path\": \"{json}\", \"label\": \"y\"}}\n"),
            ),
            ("folder", "labels.csv", format!("path,labels\na.png,x\n{path},y\n")),
            ("folder", "labels.json", format!("{{\"a.png\": [\"x\"], \"{json}\": [\"y\"]}}")),
        ] {
            let file = temp.path("t").join(name);
            fs::write(&file, text).unwrap();
            let given = ConvertOptions { labels: (kind == "folder").then(|| file.clone()), ..options() };
            let src = if kind == "folder" { temp.path("t") } else { file.clone() };
            let error = convert(kind, &src, &temp.path("out"), &given).unwrap_err();
            mentions(error, &["private", "b.png", "--allow-outside"]);
            let skip = ConvertOptions { on_bad: OnBad::Skip, ..given.clone() };
            let out = temp.path(&format!("skip-{number}-{name}"));
            assert_eq!(convert(kind, &src, &out, &skip).unwrap().skipped.len(), 1);
            if number < 2 {
                let allowed = ConvertOptions { allow_outside: true, ..given };
                let made = convert(kind, &src, &temp.path(&format!("all-{number}-{name}")), &allowed).unwrap();
                assert_eq!(made.manifest.splits["train"].count, 2);
            }
            fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn a_file_of_empty_records_takes_no_more_memory_than_is_allowed() {
    let temp = Temp::new();
    let record = [0xced7_230au32.to_le_bytes(), [0; 4]].concat();
    write(&temp.path("train.rec"), &record.repeat(100_000));
    let limits = loaders::Limits::with_memory(1 << 20);
    let little = ConvertOptions { limits, on_bad: OnBad::Skip, ..options() };
    let error = convert("recordio", &temp.path("train.rec"), &temp.path("out"), &little).unwrap_err();
    mentions(error, &["train.rec: ", "list of records", "--limit-memory"]);
}
