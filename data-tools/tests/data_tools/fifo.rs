//! Tests that FIFOs in the place of files are rejected at once. Opening a FIFO would wait forever for a writer.

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::pictures::small;
use crate::common::*;
use data_tools::{ConvertOptions, convert, info, stats, verify};
use loaders::shard::index_path;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::{fs, thread};
use support::mentions;
use support::program::{PATIENCE, longer};

/// Replaces a file by a FIFO.
fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Asserts that `run` returns soon, with a message that mentions the FIFO.
#[track_caller]
fn message(run: impl FnOnce() -> String + Send + 'static) {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(run()));
    let text = receiver.recv_timeout(longer(PATIENCE)).expect("it waits for a writer");
    mentions(text, &["FIFO"]);
}

#[test]
fn a_shard_or_an_index() {
    let temp = Temp::new();
    let dir = temp.path("d");
    let shard = dir.join("train.tfrecord");
    write_dataset(&dir, &[Foreign::raw(0), Foreign::raw(1)], &["a", "b"]);
    let whole = fs::read(&shard).unwrap();
    fifo(&shard);
    let of = |run: fn(&Path) -> String| {
        let dir = dir.clone();
        message(move || run(&dir));
    };
    of(|dir| verify(dir, 1).unwrap().to_string());
    of(|dir| stats(dir, "train", 1).unwrap_err().to_string());
    of(|dir| info(dir).unwrap_err().to_string());
    of(|dir| index(dir).unwrap_err().to_string());
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, whole).unwrap();
    fifo(&index_path(&shard));
    of(|dir| verify(dir, 1).unwrap().to_string());
}

#[test]
fn a_file_of_a_source() {
    let temp = Temp::new();
    small(&temp.path("src"));
    mnist(&temp.path("mnist"), false, false);
    write_files(&temp.path("cifar"), &cifar10_files());
    fifo(&temp.path("src/cat/a.jpg"));
    fifo(&temp.path("classes.txt"));
    fifo(&temp.path("cifar/test_batch.bin"));
    fifo(&temp.path("cifar.tar.gz"));
    let refused = |kind: &'static str, src: &str, classes: Option<&str>| {
        let (src, out, classes) = (temp.path(src), temp.path("out"), classes.map(|name| temp.path(name)));
        message(move || {
            let options = ConvertOptions { progress: false, classes, ..ConvertOptions::default() };
            convert(kind, &src, &out, &options).unwrap_err().to_string()
        });
    };
    refused("folder", "src", None);
    refused("folder", "src", Some("classes.txt"));
    refused("cifar10", "cifar", None);
    refused("cifar10", "cifar.tar.gz", None);
}
