//! Tests sources that are missing, damaged or in another format. The message must name the cause, and no files may be
//! left.

use crate::common::*;
use data_tools::{ConvertOptions, Error, KINDS, convert};
use std::fs;
use std::path::Path;
use support::mentions;

/// Converts `src`. The conversion must fail with a message that contains all `parts` and leave no files.
#[track_caller]
fn refused(kind: &str, src: &Path, parts: &[&str]) -> Error {
    let temp = Temp::new();
    let out = temp.path("made/for/out");
    let error = convert(kind, src, &out, &ConvertOptions::default()).unwrap_err();
    mentions(&error, parts);
    assert_removed(&temp.path("made"));
    assert!(names(&temp.path("")).is_empty(), "left behind: {:?}", names(&temp.path("")));
    error
}

/// Converts `src`. The conversion must fail because the file or folder `name` is missing.
#[track_caller]
fn lacks(kind: &str, src: &Path, name: &str) {
    let error = refused(kind, src, &[]);
    assert!(matches!(&error, Error::Missing { path, .. } if path.ends_with(name)), "{name}: {error}");
}

#[test]
fn missing() {
    let temp = Temp::new();
    for (kind, _) in KINDS {
        refused(kind, &temp.path("nowhere"), &["expected"]);
        lacks(kind, &temp.path("nowhere"), "nowhere");
        fs::create_dir_all(temp.path("empty")).unwrap();
        refused(kind, &temp.path("empty"), &["empty", "found", "expected"]);
    }
    refused("mnits", &temp.path("x"), &["`mnits`", "mnist, fashion-mnist, cifar10"]);
    fs::write(temp.path("file"), "x").unwrap();
    refused("mnist", &temp.path("file"), &["not a folder"]);
    mnist(&temp.path("m"), false, true);
    fs::remove_file(temp.path("m/t10k-labels-idx1-ubyte.gz")).unwrap();
    lacks("mnist", &temp.path("m"), "t10k-labels-idx1-ubyte");
    write_files(&temp.path("c"), &cifar10_files());
    fs::remove_file(temp.path("c/data_batch_4.bin")).unwrap();
    refused("cifar10", &temp.path("c"), &["binary version"]);
    lacks("cifar10", &temp.path("c"), "data_batch_4.bin");
}

/// Replaces one file of a valid MNIST source.
fn mnist_with(name: &str, data: &[u8], parts: &[&str]) {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    fs::write(temp.path("src").join(name), data).unwrap();
    refused("mnist", &temp.path("src"), &[&[name], parts].concat());
}

#[test]
fn idx_damaged() {
    let (images, labels_file) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    let good = idx_images(53, 5, 4);
    mnist_with(images, b"", &["cut short", "16 bytes", " 0 "]);
    mnist_with(images, &good[..10], &["cut short", "16 bytes", " 10 "]);
    mnist_with(images, &good[..1000], &["cut short", "53 images of 5 x 4", "1060 bytes", "984"]);
    mnist_with(images, &[good.as_slice(), b"x"].concat(), &["after the 1060 bytes"]);
    mnist_with(images, b"PNG and so on, not IDX", &["magic number 0x504e4720", "0x00000803"]);
    mnist_with(images, &idx_labels(&labels(53)), &["0x00000801", "swapped"]);
    mnist_with(images, &idx_images(53, 0, 4), &["0 x 4"]);
    mnist_with(labels_file, &idx_labels(&labels(52)), &["52 labels", "53 images"]);
    mnist_with(labels_file, &idx_labels(&labels(53))[..40], &["cut short", "53 labels", "32"]);
    let mut wrong = labels(53);
    wrong[41] = 10;
    mnist_with(labels_file, &idx_labels(&wrong), &["label 10 ", "sample 41", "0 to 9"]);

    // A header that promises 2^32 images must not allocate memory for them.
    let mut huge = good;
    huge[4..8].fill(0xff);
    mnist_with(images, &huge, &["cut short", "4294967295 images"]);
}

#[test]
fn empty_splits_and_sizes_that_differ() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, false);
    fs::write(temp.path("src/train-images-idx3-ubyte"), idx_images(53, 6, 4)).unwrap();
    refused("mnist", &temp.path("src"), &["6 x 4", "5 x 4", "belong together"]);
    fs::write(temp.path("src/train-images-idx3-ubyte"), idx_images(0, 5, 4)).unwrap();
    fs::write(temp.path("src/train-labels-idx1-ubyte"), idx_labels(&[])).unwrap();
    refused("mnist", &temp.path("src"), &["no samples"]);
}

#[test]
fn gzip_damaged() {
    let temp = Temp::new();
    mnist(&temp.path("src"), false, true);
    let path = temp.path("src/train-images-idx3-ubyte.gz");
    let good = fs::read(&path).unwrap();
    for cut in [5, 30, good.len() / 2, good.len() - 4] {
        fs::write(&path, &good[..cut]).unwrap();
        refused("mnist", &temp.path("src"), &["train-images-idx3-ubyte.gz", "cut short"]);
    }
    let mut flipped = good.clone();
    let at = good.len() - 6;
    flipped[at] ^= 1; // In the checksum at the end.
    fs::write(&path, &flipped).unwrap();
    refused("mnist", &temp.path("src"), &["train-images-idx3-ubyte.gz", "damaged"]);
    // Not gzip despite its name. The content decides.
    fs::write(&path, b"not gzip at all, plain text").unwrap();
    refused("mnist", &temp.path("src"), &["magic number"]);
}

#[test]
fn damaged_cifar_files_are_refused() {
    let temp = Temp::new();
    let with = |name: &str, data: Vec<u8>, parts: &[&str]| {
        let src = temp.path("src");
        write_files(&src, &cifar10_files());
        let _ = fs::remove_file(src.join("batches.meta.txt"));
        fs::write(src.join(name), data).unwrap();
        refused("cifar10", &src, &[&[name], parts].concat());
    };
    let good = cifar_batch(3, 1, 10, 0);
    with("data_batch_2.bin", good[..6000].to_vec(), &["6000 bytes", "3073", "1 records", "2927 bytes"]);
    with("test_batch.bin", Vec::new(), &["0 bytes", "3073"]);
    let mut wrong = good;
    wrong[2 * 3073] = 10;
    with("data_batch_5.bin", wrong, &["label 10 ", "record 2 ", "byte 6146", "0 to 9"]);
    with("batches.meta.txt", b"cat\ndog\n".to_vec(), &["2 class names", "CIFAR-10 has 10"]);
}

#[test]
fn the_python_version_is_recognised() {
    let temp = Temp::new();
    write_files(&temp.path("src"), &[("data_batch_1".into(), b"pickle".to_vec())]);
    refused("cifar10", &temp.path("src"), &["version for Python", "binary version"]);
    let archive = tar("cifar-10-batches-py", &[("data_batch_1".into(), b"pickle".to_vec())]);
    fs::write(temp.path("c.tar.gz"), gz(&archive)).unwrap();
    refused("cifar10", &temp.path("c.tar.gz"), &["version for Python", "binary version"]);
}

#[test]
fn damaged_archives_are_refused() {
    let temp = Temp::new();
    let archive = tar("cifar-10-batches-bin", &cifar10_files());
    let packed = gz(&archive);
    let path = temp.path("c.tar.gz");
    let with = |data: &[u8], parts: &[&str]| {
        fs::write(&path, data).unwrap();
        refused("cifar10", &path, parts);
    };
    for cut in [5, packed.len() / 3, packed.len() - 3] {
        with(&packed[..cut], &["c.tar.gz", "cut short"]);
    }
    with(&archive[..9 * 512], &["c.tar.gz", "cut short"]);
    with(&gz(&archive[..9 * 512]), &["c.tar.gz", "cut short"]);
    with(b"", &["c.tar.gz", "empty"]);
    with(&vec![b'x'; 3000], &[".tar or .tar.gz"]);
    let mut twice = cifar10_files();
    twice.push(twice[0].clone());
    with(&tar("c", &twice), &["data_batch_1.bin", "twice"]);
    let partial = &cifar10_files()[1..];
    fs::write(&path, tar("c", partial)).unwrap();
    lacks("cifar10", &path, "data_batch_1.bin");
}
