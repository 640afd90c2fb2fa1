//! Tiny sources in the published formats, and temporary folders.

pub mod foreign;
pub mod pictures;
pub mod tiff;

use data_tools::{ConvertOptions, Error, IndexSummary, OnBad, convert};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use loaders::{Dataset, Example, Split};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use support::mentions;
use support::program::Folder;

/// A folder that is deleted when dropped.
pub struct Temp(Folder);

impl Temp {
    pub fn new() -> Self {
        Temp(Folder::new())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Returns options with two shards and without progress.
pub fn options() -> ConvertOptions {
    ConvertOptions { shards: 2, progress: false, ..ConvertOptions::default() }
}

/// Returns [`options`] that leave out unusable images.
pub fn skipping() -> ConvertOptions {
    ConvertOptions { on_bad: OnBad::Skip, ..options() }
}

/// Converts `src`. The conversion must fail with a message that contains all `parts` and write no data set.
#[track_caller]
pub fn refused(kind: &str, src: &Path, options: &ConvertOptions, parts: &[&str]) -> Error {
    let temp = Temp::new();
    let error = convert(kind, src, &temp.path("out"), options).unwrap_err();
    mentions(&error, parts);
    assert!(!temp.path("out").exists());
    error
}

/// Asserts that a failed conversion has removed its temporary folder, or a parent folder that it created.
#[track_caller]
pub fn assert_removed(folder: &Path) {
    assert!(!folder.exists(), "left behind: {}", folder.display());
}

/// Indexes the shards in `dir` with the default options.
pub fn index(dir: &Path) -> Result<IndexSummary, Error> {
    data_tools::index(dir, &[], OnBad::Fail)
}

/// Calls `of` with a split, each of its records and the record's label. Returns the results in order.
pub fn each_record<T>(dir: &Path, split: &str, mut of: impl FnMut(&Split, Example<'_>, u32) -> T) -> Vec<T> {
    let split = Dataset::open(dir).unwrap().split(split).unwrap();
    let mut copy = Vec::new();
    let one = |id| {
        let (example, label) = split.record(id, &mut copy).unwrap();
        of(&split, example, label)
    };
    (0..split.len()).map(one).collect()
}

/// Returns the file name in each record of a split.
pub fn file_names(dir: &Path, split: &str) -> Vec<String> {
    each_record(dir, split, |_, example, _| example.filename.to_string())
}

/// Returns the path to a directory with input files from other programs.
pub fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(name)
}

/// Asserts that the error lists unusable lines of `file`, as many as `expected` has entries. For each entry, one of the
/// messages must contain all its parts. `count` is the total with its noun.
#[track_caller]
pub fn assert_bad_lines(error: &Error, file: &str, count: &str, expected: &[&[&str]]) {
    let Error::Lines { path, count: found, lines, .. } = error else { panic!("expected unusable lines, got: {error}") };
    assert!(path.ends_with(file) && **found == *count && lines.len() == expected.len(), "{count} of {file}: {error}");
    for parts in expected {
        let is_listed = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(is_listed, "no line contains {parts:?}: {error}");
    }
}

/// Returns a pseudorandom byte that is the same on all machines.
pub fn byte(i: usize) -> u8 {
    ((i as u32).wrapping_mul(2_654_435_761) >> 19) as u8
}

pub fn idx_images(count: u32, height: u32, width: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0x0803, count, height, width] {
        out.extend(word.to_be_bytes());
    }
    out.extend((0..(count * height * width) as usize).map(byte));
    out
}

pub fn idx_labels(labels: &[u8]) -> Vec<u8> {
    let mut out = 0x0801u32.to_be_bytes().to_vec();
    out.extend((labels.len() as u32).to_be_bytes());
    out.extend(labels);
    out
}

pub fn labels(count: u32) -> Vec<u8> {
    (0..count).map(|i| (i * 7 % 10) as u8).collect()
}

/// Writes MNIST with 53 + 11 images of 5 x 4 pixels to `dir`. `dot` writes names with a dot instead of the dash, and
/// `gzip` compresses the files.
pub fn mnist(dir: &Path, dot: bool, gzip: bool) {
    fs::create_dir_all(dir).unwrap();
    for (prefix, count) in [("train", 53), ("t10k", 11)] {
        for (stem, data) in
            [("images-idx3-ubyte", idx_images(count, 5, 4)), ("labels-idx1-ubyte", idx_labels(&labels(count)))]
        {
            let stem = if dot { stem.replace("-idx", ".idx") } else { stem.to_string() };
            let suffix = if gzip { ".gz" } else { "" };
            let data = if gzip { gz(&data) } else { data };
            fs::write(dir.join(format!("{prefix}-{stem}{suffix}")), data).unwrap();
        }
    }
}

pub fn gz(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Returns `count` CIFAR records with `head` label bytes. The last label byte is less than `classes`.
pub fn cifar_batch(count: usize, head: usize, classes: usize, salt: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..count {
        for h in 0..head {
            let label = if h + 1 == head { (i + salt) % classes } else { 200 };
            out.push(label as u8);
        }
        out.extend((0..3072).map(|p| byte(p + 5000 * i + 77 * salt)));
    }
    out
}

pub const CIFAR10_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

pub fn cifar10_files() -> Vec<(String, Vec<u8>)> {
    let each = CIFAR10_FILES.iter().enumerate();
    each.map(|(i, name)| (name.to_string(), cifar_batch(3 + i % 2, 1, 10, i))).collect()
}

pub fn write_files(dir: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(dir).unwrap();
    for (name, data) in files {
        fs::write(dir.join(name), data).unwrap();
    }
}

/// Returns a tar archive with the files in the folder `folder`, or without a folder if it is empty.
pub fn tar(folder: &str, files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let path = Path::new(folder).join(name);
        builder.append_data(&mut header, path, data.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Returns the content of all files in a folder.
pub fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

/// Returns the names of all entries in a folder.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
