//! Regression tests: run the real binary on inputs that made an earlier version fail. They are in `tests/cases`.
//!
//! Each input is one example of a kind of fault. Unit tests next to the code cover the same kind thoroughly.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::in_repository;
use support::program::{Folder, PATIENCE, ProgramOutput, start, trireme};

/// A case's input files, copied to a temporary folder.
struct Case {
    folder: Folder,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

fn inputs() -> PathBuf {
    in_repository("tests/cases")
}

impl Case {
    /// Creates a case without input files.
    fn empty() -> Self {
        Self { folder: Folder::new() }
    }

    fn new(name: &str) -> Self {
        let case = Self::empty();
        copy(&inputs().join(name), case.folder.path());
        case
    }

    fn run(&self, args: &[&str]) -> ProgramOutput {
        let mut command = trireme(0, args);
        command.current_dir(self.folder.path());
        start(command).wait(PATIENCE)
    }

    /// Runs `trireme data convert` on `source` with the output folder `out`, which is deleted first.
    fn convert(&self, kind: &str, source: &str, more: &[&str]) -> ProgramOutput {
        let _ = fs::remove_dir_all(self.folder.path().join("out"));
        self.run(&[&["data", "convert", kind, source, "out"], more].concat())
    }

    /// Returns the number of images in a split, or 0 if the data set does not have the split.
    fn count(&self, set: &str, split: &str) -> u64 {
        self.manifest(set)["splits"][split]["count"].as_u64().unwrap_or(0)
    }

    fn manifest(&self, set: &str) -> Value {
        let text = fs::read_to_string(self.folder.path().join(set).join("dataset.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn skipped(&self) -> String {
        fs::read_to_string(self.folder.path().join("out/skipped.txt")).unwrap()
    }
}

/// Asserts the exit code and that the output contains all `parts`.
#[track_caller]
fn says(ended: &ProgramOutput, code: i32, parts: &[&str]) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.status.code(), Some(code), "{said}");
    parts.iter().for_each(|part| assert!(said.contains(part), "{part:?} in {said}"));
}

#[test]
fn class_names_of_parquet_files_are_mapped_by_name() {
    let case = Case::new("parquet-class-names");
    says(&case.convert("parquet", "src", &[]), 0, &[]);
    assert_eq!(case.manifest("out")["classes"], serde_json::json!(["a", "b", "c"]));
    // class a is red, b is green, c is blue
    for number in 0..8 {
        let (number, file) = (number.to_string(), format!("{number}.png"));
        let ended = case.run(&["data", "extract", "out", &number, "--split", "validation", "-o", &file]);
        let pixel = image::open(case.folder.path().join(&file)).unwrap().to_rgb8().get_pixel(0, 0).0;
        let colour = (0..3).max_by_key(|channel| pixel[*channel]).unwrap();
        says(&ended, 0, &[&format!("of validation, {},", ["a", "b", "c"][colour])]);
    }
}

#[test]
fn names_that_contradict_each_other_are_refused_with_both_places() {
    let case = Case::new("index-conflicting-names");
    let ended = case.run(&["data", "index", "src"]);
    says(&ended, 1, &["train-00000-of-00001.tfrecord: record 0", "byte 0 of test-00000-of-00001.tfrecord"]);
}

#[test]
fn words_for_splits_are_known_in_any_form() {
    let case = Case::new("split-word-unknown");
    for source in ["ok", "eval", "coco", "camel", "holdout"] {
        says(&case.convert("webdataset", &format!("src/{source}"), &[]), 0, &[]);
        assert_eq!([case.count("out", "train"), case.count("out", "validation")], [8, 4], "{source}");
    }
    let case = Case::new("tfrecord-split-names");
    says(&case.run(&["data", "index", "slim5"]), 0, &[]);
    assert_eq!([case.count("slim5", "train"), case.count("slim5", "validation")], [30, 30]);
    assert_eq!(case.manifest("slim5")["classes"], serde_json::json!(["cat", "dog", "emu"]));
    says(&case.run(&["data", "index", "v_val-00000"]), 0, &[]);
    assert_eq!(case.count("v_val-00000", "validation"), 9);
}

#[test]
fn a_folder_one_level_too_high_is_refused() {
    let case = Case::new("folder-one-level-up");
    says(&case.convert("folder", "src", &[]), 1, &["train, val", "src/dataset"]);
    let (train, small) = (case.folder.path().join("w/train"), case.folder.path().join("w/train_small"));
    [train, small].iter().for_each(|to| copy(&case.folder.path().join("src/dataset/train"), to));
    says(&case.convert("folder", "w", &[]), 1, &["`train_small`", "--split-map"]);
}

#[test]
fn classes_that_training_lacks_are_refused() {
    let case = Case::new("classes-only-in-test");
    (0..4).for_each(|n| drop(fs::copy(inputs().join(format!("{n}.png")), case.folder.path().join(format!("{n}.png")))));
    says(&case.convert("csv", "t.csv", &[]), 1, &["line 4: ", "label `z`", "2 classes"]);
    says(&case.convert("folder", "f", &[]), 1, &["not have: z", "--on-bad skip"]);
}

#[test]
fn lines_with_too_many_fields_are_refused() {
    let case = Case::new("csv-long-lines");
    (0..4).for_each(|n| drop(fs::copy(inputs().join(format!("{n}.png")), case.folder.path().join(format!("{n}.png")))));
    let line = "more fields";
    says(&case.convert("csv", "comma.csv", &[]), 1, &["line 2: ", "line 3: ", line]);
    says(&case.convert("csv", "comma3.csv", &[]), 1, &["bird", "machine", "--split-map"]);
    says(&case.convert("csv", "several.csv", &[]), 1, &["line 2: ", line]);
}

#[test]
fn labels_that_cannot_be_used_are_left_out_on_request() {
    let case = Case::new("on-bad-skip-labels");
    for (kind, source, more, train, left_out) in [
        ("parquet", "null-label", &[][..], 8, ["row 4: ", "is null"]),
        ("parquet", "minus-one", &[], 9, ["row 0: ", "label `-1`"]),
        ("webdataset", "wds", &["--classes", "cl.txt"], 6, ["s2.jpg: ", "label `emu`"]),
        ("recordio", "insightface", &[], 9, ["record 0 ", "byte 0"]),
    ] {
        says(&case.convert(kind, source, &[&["--on-bad", "skip"], more].concat()), 0, &[]);
        assert_eq!(case.count("out", "train"), train, "{source}");
        let skipped = case.skipped();
        assert!(left_out.iter().all(|part| skipped.contains(part)), "{source}: {skipped}");
    }
}

#[test]
fn archives_and_records_say_what_is_wrong_with_them() {
    let case = Case::new("wds-messages");
    says(&case.convert("webdataset", "jnan", &[]), 1, &["s0.json: ", "valid JSON"]);
    says(&case.convert("webdataset", "gz", &[]), 1, &["gz/train-000000.tar.gz: ", "compressed"]);
    says(&case.convert("webdataset", "gz2", &[]), 1, &["gz2/train-000000.tar: ", "compressed with gzip"]);
    says(&case.convert("webdataset", "inp", &[]), 1, &[".input.jpg, .target.cls"]);
    says(&case.convert("webdataset", "cat", &[]), 0, &[]);
    assert_eq!(case.count("out", "train"), 18);
    let case = Case::new("tfrecord-messages");
    let ended = case.convert("tfrecord", "missing_label", &[]);
    says(&ended, 1, &["missing_label/train-00000-of-00001: record 4", "`image/class/label`"]);
    says(&case.run(&["data", "index", "raw_grey_nochan"]), 1, &["`image/channels` is missing"]);
}

/// Returns the largest resident size in bytes among this test binary's child processes.
fn most_memory() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is valid for writes, and zero is valid for all fields.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_maxrss as u64 * 1024
}

/// A single test, because the memory counter includes all child processes of this test binary.
#[test]
fn small_files_do_not_ask_for_much_memory() {
    let case = Case::new("keras-h5-bomb");
    let ended = case.run(&["import", "gzipbomb.h5", "--model", "lenet", "--transform", "normalize(0,1)", "-o", "m.h5"]);
    says(&ended, 1, &["gzipbomb.h5", "beta:0 ", "[268435456]"]);
    let case = Case::new("parquet-abort");
    says(&case.convert("parquet", "dict-num-values.parquet", &[]), 1, &["dict-num-values.parquet"]);
    let case = Case::new("parquet-memory");
    for file in ["dict-num-values-2p27.parquet", "uncompressed-page-size.parquet"] {
        says(&case.convert("parquet", file, &[]), 1, &[file]);
    }
    assert!(most_memory() < 700 << 20, "{} MiB", most_memory() >> 20);
}

#[test]
fn panics_of_decoders_are_errors_that_name_the_file() {
    let case = Case::new("parquet-panic");
    for file in ["a.parquet", "b.parquet"] {
        let ended = case.convert("parquet", file, &[]);
        says(&ended, 1, &[file]);
        assert!(!ended.stderr.contains("RUST_BACKTRACE"), "{}", ended.stderr);
    }
    let case = Case::new("tiff-panic");
    says(&case.convert("folder", "src", &["--on-bad", "skip"]), 0, &[]);
}

#[test]
fn orientation_of_webp_is_applied_whatever_its_prefix() {
    let case = Case::new("webp-exif-prefix");
    says(&case.convert("folder", "src", &["--shards", "1"]), 0, &[]);
    let picture = |number: &str| {
        let file = case.folder.path().join(format!("{number}.png"));
        says(&case.run(&["data", "extract", "out", number, "-o", &file.display().to_string()]), 0, &[]);
        image::open(&file).unwrap().to_rgb8()
    };
    let (one, other) = (picture("0"), picture("1"));
    assert_eq!(one.dimensions(), other.dimensions());
    let differences = one.iter().zip(other.iter()).map(|(a, b)| f64::from(a.abs_diff(*b)));
    assert!(differences.sum::<f64>() / (one.len() as f64) < 8.0);
}

#[test]
fn graphs_of_other_programs_are_read() {
    for (case, files) in [
        ("onnx-constants", &["light_resnet50.onnx", "light_squeezenet.onnx"][..]),
        ("onnx-tensorflow", &["k_flat-nchw-sim.onnx", "k_flat-nchw.onnx", "k_seq-nchw.onnx", "k_seq-nhwc.onnx"]),
    ] {
        let case = Case::new(case);
        for file in files {
            says(&case.run(&["models", file]), 0, &["nodes are supported"]);
        }
    }
}

#[test]
fn names_in_files_cannot_begin_a_line_of_the_output() {
    let case = Case::new("forged-lines");
    let forged = |ended: &ProgramOutput| {
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.lines().any(|line| line.starts_with("12:00:00Z")), "{said}");
        assert!(said.contains("\\u000a12:00:00Z"), "{said}");
    };
    ["op.onnx", "init.onnx", "n.toml"].iter().for_each(|file| forged(&case.run(&["models", file])));
    for file in ["twice.safetensors", "g.pth"] {
        forged(&case.run(&["import", file, "--model", "lenet", "--transform", "normalize(0,1)", "-o", "m.h5"]));
    }
}

/// The conversion must refuse three kinds of HDF5 files: an array with values in another file, a list of arrays
/// over 1 MiB, and 70 images in one compressed chunk of 70 MiB, which would be decompressed again for each image.
#[test]
fn hostile_hdf5_files_are_refused() {
    use hdf5_metno::File;
    let case = Case::empty();
    let path = |name: &str| case.folder.path().join(name);
    let convert = |file: &str, images: &str| case.convert("hdf5", file, &["--images", images, "--labels", "labels"]);
    let labelled = |name: &str, labels: usize| {
        let file = File::create(path(name)).unwrap();
        file.new_dataset::<i64>().shape(labels).create("labels").unwrap().write_raw(&vec![0i64; labels]).unwrap();
        file
    };
    {
        let other = File::create(path("other.h5")).unwrap();
        other.new_dataset::<u16>().shape((4, 5, 6)).create("x").unwrap().write_raw(&[7u16; 120]).unwrap();
        let file = labelled("virtual.h5", 4);
        let seen = file.new_dataset::<u16>().virtual_map("other.h5", "x", (4, 5, 6), .., (4, 5, 6), ..);
        seen.shape((4, 5, 6)).create("seen").unwrap();
        // 300 names of 60,000 letters do not fit into the 1 MiB limit for the list of arrays.
        let names = labelled("names.h5", 4);
        for number in 0..300 {
            let name = format!("{number:03}{}", "a".repeat(60_000));
            names.new_dataset::<u8>().shape(1).create(name.as_str()).unwrap();
        }
        let large = labelled("large.h5", 70);
        let images = large.new_dataset::<u8>().chunk((70, 1024, 1024)).deflate(1).shape((70, 1024, 1024));
        images.create("images").unwrap().write_raw(&vec![0u8; 70 << 20]).unwrap();
    }
    says(&convert("virtual.h5", "seen"), 1, &["no array `seen`", "arrays with values in other files"]);
    says(&convert("names.h5", "x"), 1, &["names.h5", "1048576 bytes"]);
    says(&convert("large.h5", "images"), 1, &["large.h5", "70 entries", "70.0 MiB"]);
}

/// An integration test, because the program reads HDF5 files in a child process of itself.
#[test]
fn arrays_of_hdf5_files_are_read_and_links_to_others_are_not() {
    use hdf5_metno::File;
    let case = Case::empty();
    let path = |name: &str| case.folder.path().join(name);
    let run = |args: &[&str]| case.run(args);
    // The values of four images with two bands, in the order (C, H, W).
    let values: Vec<u16> = (0..4 * 2 * 5 * 6).map(|i| (i * 517 % 60_000) as u16).collect();
    {
        let file = File::create(path("scans.h5")).unwrap();
        let group = file.create_group("deep").unwrap();
        let images =
            group.new_dataset::<u16>().chunk((3, 2, 5, 6)).deflate(4).shape((4, 2, 5, 6)).create("scans").unwrap();
        images.write_raw(&values).unwrap();
        group.new_dataset::<i64>().shape(4).create("kinds").unwrap().write_raw(&[0i64, 1, 0, 1]).unwrap();
        group.new_dataset::<f32>().shape(4).create("floats").unwrap().write_raw(&[0f32; 4]).unwrap();
        group.new_dataset::<bool>().shape(4).create("flags").unwrap().write_raw(&[true, false, true, true]).unwrap();
        group.link_soft("scans", "alias").unwrap();
        group.link_external("other.h5", "x", "outside").unwrap();
        let other = File::create(path("other.h5")).unwrap();
        other.new_dataset::<u16>().shape((4, 5, 6)).create("x").unwrap().write_raw(&values[..120]).unwrap();
    }
    let convert = |images: &str, labels: &str, out: &str| {
        let arrays = ["--images", images, "--labels", labels, "--layout", "NCHW"];
        run(&[&["data", "convert", "hdf5", "scans.h5", out, "--shards", "1"][..], &arrays].concat())
    };
    says(&convert("/deep/scans", "deep/kinds", "out"), 0, &["train 4 in 1 shard"]);
    says(&run(&["data", "verify", "out"]), 0, &["all good"]);
    for id in 0..4 {
        let name = format!("{id}.npy");
        says(&run(&["data", "extract", "out", &id.to_string(), "-o", &name]), 0, &["6 x 5 pixels"]);
        let file = fs::read(path(&name)).unwrap();
        let image: Vec<u16> = file[128..].chunks_exact(2).map(|v| u16::from_le_bytes([v[0], v[1]])).collect();
        let interleaved = |image: &[u16]| -> Vec<u16> { (0..60).map(|i| image[i % 2 * 30 + i / 2]).collect() };
        assert!(values.chunks(60).any(|stored| interleaved(stored) == image), "image {id} is one of the file's");
    }
    for link in ["deep/alias", "deep/outside"] {
        says(&convert(link, "deep/kinds", "linked"), 1, &[&format!("no array `{link}`"), "not followed"]);
    }
    says(&convert("deep/scans", "deep/floats", "floats"), 1, &["deep/floats", "expected integers"]);
    says(&convert("deep/scans", "deep/flags", "flags"), 0, &["train 4 in 1 shard", "2 classes"]);
    // Converts a table with a single row, which names an HDF5 file.
    {
        let one = File::create(path("one.h5")).unwrap();
        one.new_dataset::<f32>()
            .shape((2, 3))
            .create("image")
            .unwrap()
            .write_raw(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .unwrap();
    }
    fs::write(path("list.csv"), "path,label\none.h5,a\n").unwrap();
    says(&run(&["data", "convert", "csv", "list.csv", "listed"]), 0, &["train 1 in 1 shard"]);
    says(&run(&["data", "info", "listed"]), 0, &["1 band of float32"]);
    let whole = fs::read(path("scans.h5")).unwrap();
    for cut in [0, 100, whole.len() / 2] {
        fs::write(path("scans.h5"), &whole[..cut]).unwrap();
        says(&convert("deep/scans", "deep/kinds", "cut"), 1, &["scans.h5"]);
    }
}
