//! Tests outputs that cannot be written, and invalid requests.

use crate::common::pictures::{jpeg, write};
use crate::common::*;
use data_tools::{ConvertOptions, Error, Sample, Source, SourceInfo, SourceSplit, convert};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use support::disk::{Disk, with_permission_to_mount};
use support::mentions;

fn source(temp: &Temp) -> std::path::PathBuf {
    let src = temp.path("src");
    mnist(&src, false, false);
    src
}

fn failed(temp: &Temp, out: &Path, options: &ConvertOptions) -> Error {
    convert("mnist", &source(temp), out, options).unwrap_err()
}

/// Asserts that the error says that `out` already exists, and that it describes the existing output with `expected`.
#[track_caller]
fn assert_taken(error: &Error, out: &Path, expected: &str) {
    assert!(
        matches!(error, Error::OutTaken { path, what } if path == out && what.contains(expected)),
        "{}: {expected}: {error}",
        out.display()
    );
}

#[test]
fn a_taken_output_is_refused_and_left_alone() {
    let temp = Temp::new();
    let out = temp.path("out");
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("precious"), "mine").unwrap();
    let error = failed(&temp, &out, &ConvertOptions::default());
    assert!(error.is_usage());
    assert_taken(&error, &out, "1 entry");
    assert_eq!(contents(&out)["precious"], b"mine");
    assert_eq!(names(&temp.path("")), ["out", "src"]);

    fs::write(temp.path("file"), "x").unwrap();
    assert_taken(&failed(&temp, &temp.path("file"), &ConvertOptions::default()), &temp.path("file"), "not a folder");
}

#[test]
fn an_empty_folder_and_a_link_to_one_are_fine() {
    let temp = Temp::new();
    let src = source(&temp);
    fs::create_dir_all(temp.path("empty")).unwrap();
    fs::create_dir_all(temp.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(temp.path("elsewhere"), temp.path("link")).unwrap();
    for (out, real) in [("empty", "empty"), ("link", "elsewhere")] {
        convert("mnist", &src, &temp.path(out), &ConvertOptions::default()).unwrap();
        assert!(temp.path(real).join("dataset.json").is_file());
    }
    std::os::unix::fs::symlink(temp.path("nothing"), temp.path("dangling")).unwrap();
    let dangling = temp.path("dangling");
    assert_taken(&failed(&temp, &dangling, &ConvertOptions::default()), &dangling, "dangling link");
}

#[test]
fn an_output_that_cannot_be_made() {
    let temp = Temp::new();
    fs::write(temp.path("file"), "x").unwrap();
    let error = failed(&temp, &temp.path("file/out"), &ConvertOptions::default());
    assert!(
        matches!(&error, Error::Io { path, source, .. }
            if path.ends_with("file/out") && source.kind() == ErrorKind::NotADirectory),
        "{error}"
    );

    // No user can create folders in /proc, not even root.
    let error = failed(&temp, Path::new("/proc/trireme-out"), &ConvertOptions::default());
    assert!(
        matches!(&error, Error::Io { action: "create the folder", path, .. } if path.starts_with("/proc")),
        "{error}"
    );
    assert_taken(&failed(&temp, Path::new("/"), &ConvertOptions::default()), Path::new("/"), " entries");
}

/// The finished folder could not be moved there. The user should learn this before the conversion, not after it.
#[test]
fn an_output_that_is_a_file_system() {
    with_permission_to_mount("bad_output::an_output_that_is_a_file_system", || {
        let temp = Temp::new();
        let out = temp.path("out");
        let _disk = Disk::mount(out.display().to_string(), "4m").unwrap();
        let error = failed(&temp, &out, &ConvertOptions::default());
        assert!(error.is_usage(), "{error}");
        let inside = out.join("data");
        mentions(&error, &[&format!("{}: ", out.display()), "mount point", &inside.display().to_string()]);
        assert_eq!((names(&temp.path("")), names(&out).len()), (vec!["out".into(), "src".into()], 0));
        convert("mnist", &temp.path("src"), &inside, &ConvertOptions::default()).unwrap();
    });
}

/// An output inside the source is rejected, because the next conversion would take it for a class. Kinds that read only
/// files with fixed names accept such an output.
#[test]
fn an_output_in_the_folder_that_is_read() {
    let temp = Temp::new();
    let (photos, out) = (temp.path("photos"), temp.path("out"));
    (0..2).for_each(|i| write(&photos.join(format!("{}/1.jpg", ["a", "b"][i as usize])), &jpeg(8, 8, i)));
    fs::create_dir(photos.join("empty")).unwrap();
    std::os::unix::fs::symlink(photos.join("a"), temp.path("link")).unwrap();
    let options = ConvertOptions { progress: false, ..ConvertOptions::default() };
    for inside in ["photos/out", "photos/a/deep/out", "photos/empty", "link/out", "photos/../photos/out"] {
        let error = convert("folder", &photos, &temp.path(inside), &options).unwrap_err();
        assert!(error.is_usage(), "{error}");
        let [out, src] = [temp.path(inside), photos.clone()].map(|path| path.display().to_string());
        mentions(&error, &[&format!("{out}: "), &format!("source folder {src}")]);
        assert_eq!(
            (names(&photos), names(&photos.join("a"))),
            (vec!["a".into(), "b".into(), "empty".into()], vec!["1.jpg".into()])
        );
    }
    fs::remove_dir(photos.join("empty")).unwrap();
    // Outputs outside the source are accepted: next to it, through a path with `..`, and with its name as a prefix.
    for (number, outside) in [out, photos.join("../other"), temp.path("photos-256")].iter().enumerate() {
        convert("folder", &photos, outside, &options).unwrap_or_else(|e| panic!("{number}: {e}"));
    }
    let table = photos.join("labels.csv");
    fs::write(&table, "path,label\na/1.jpg,a\nb/1.jpg,b\n").unwrap();
    convert("csv", &table, &photos.join("table"), &options).unwrap();
    convert("mnist", &source(&temp), &temp.path("src/out"), &options).unwrap();
}

#[test]
fn folders_left_by_killed_runs_do_not_matter() {
    let temp = Temp::new();
    let src = source(&temp);
    let pid = std::process::id();
    for stale in [format!("out.tmp-{pid}"), format!("out.tmp-{pid}-1"), "out.tmp-1".to_string()] {
        fs::create_dir_all(temp.path(&stale)).unwrap();
        fs::write(temp.path(&stale).join("train-00000-of-00016.tfrecord"), "junk").unwrap();
    }
    convert("mnist", &src, &temp.path("out"), &ConvertOptions::default()).unwrap();
    assert!(temp.path("out/dataset.json").is_file());
}

#[test]
fn absurd_numbers_of_shards() {
    let temp = Temp::new();
    for shards in [0, 100_000] {
        let options = ConvertOptions { shards, ..ConvertOptions::default() };
        let error = failed(&temp, &temp.path("out"), &options);
        assert!(error.is_usage(), "{error}");
        mentions(&error, &[&format!("{shards} shards"), "1 to 99999"]);
    }
    assert_eq!(names(&temp.path("")), ["src"]);
}

/// A source of 100 samples. One sample fails or panics.
struct Failing {
    info: SourceInfo,
    at: u64,
    panics: bool,
}

impl Failing {
    fn new(at: u64, panics: bool) -> Self {
        let splits = vec![SourceSplit { name: "train".into(), len: 100 }];
        Failing { info: SourceInfo { splits, classes: vec!["only".into()], ..SourceInfo::default() }, at, panics }
    }
}

/// A sample that only the conversion reads, and one that is also read beforehand to estimate the size.
const SAMPLES: [u64; 2] = [70, 75];

impl Source for Failing {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn sample(&self, _: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        if index == self.at {
            assert!(!self.panics, "the bad sample");
            return Err(Error::Usage("the bad sample".into()));
        }
        sample.encoded.resize(1, 0);
        (sample.height, sample.width, sample.channels) = (1, 1, 1);
        Ok(())
    }
}

#[test]
fn a_failure_half_way_leaves_nothing() {
    for (at, panics) in SAMPLES.into_iter().flat_map(|at| [(at, false), (at, true)]) {
        let temp = Temp::new();
        let out = temp.path("deep/out");
        let options = ConvertOptions::default();
        let error = data_tools::convert_source(&Failing::new(at, panics), &out, &options).unwrap_err();
        assert!(error.to_string().contains("the bad sample"), "{error}");
        assert_eq!(error.to_string().contains("the reader failed"), panics, "{error}");
        assert!(names(&temp.path("")).is_empty());
    }
}

#[test]
fn a_sample_whose_reader_panics_is_skipped() {
    for at in SAMPLES {
        let temp = Temp::new();
        let made = data_tools::convert_source(&Failing::new(at, true), &temp.path("out"), &skipping()).unwrap();
        assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (99, 1));
        mentions(&made.skipped[0], &["the reader failed", "the bad sample"]);
    }
}
