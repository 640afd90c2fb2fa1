//! Tests that an interrupted conversion continues after its finished shards and ends with the same bytes.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, Error, OnBad, convert};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::mentions;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 6, jobs: 1, progress: false, ..ConvertOptions::default() }
}

fn source(src: &Path) {
    (0..60).for_each(|i| write(&src.join(format!("{}/{i}.jpg", ["a", "b"][i as usize % 2])), &jpeg(20, 20 + i, i)));
}

/// Runs a conversion that fails at an invalid image. Returns the name of the image.
fn stopped(temp: &Temp) -> std::path::PathBuf {
    source(&temp.path("src"));
    convert("folder", &temp.path("src"), &temp.path("whole"), &options()).unwrap();
    // Damage the image in the middle of the fourth shard. Its name is in the finished data set.
    let bad = temp.path("src").join(&file_names(&temp.path("whole"), "train")[35]);
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, b"").unwrap();
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(
        matches!(&error, Error::Stopped { kept: 3, shards: 6, partial, .. } if *partial == temp.path("out.partial")),
        "{error}"
    );
    mentions(&error, &[&bad.display().to_string(), "0 bytes", "same command"]);
    assert!(!temp.path("out").exists() && !names(&temp.path("out.partial")).iter().any(|n| n.ends_with(".part")));
    fs::write(&bad, good).unwrap();
    bad
}

fn finished(temp: &Temp) -> Vec<String> {
    names(&temp.path("out.partial")).into_iter().filter(|n| n.ends_with(".tfrecord")).collect()
}

#[test]
fn it_continues_after_finished_shards() {
    let temp = Temp::new();
    stopped(&temp);
    let partial = temp.path("out.partial");
    assert_eq!(finished(&temp).len(), 3);
    let inodes = |dir: &Path| finished_inodes(dir, &["00000", "00001", "00002"]);
    let before = inodes(&partial);
    // Simulate a process that was killed while writing.
    fs::write(partial.join("train-00003-of-00006.tfrecord.part"), b"half").unwrap();
    let mut journal = fs::read(partial.join("finished.jsonl")).unwrap();
    journal.extend(b"{\"shard\":{\"file\":\"train-0000");
    fs::write(partial.join("finished.jsonl"), journal).unwrap();
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    assert_eq!((made.resumed, inodes(&temp.path("out"))), (3, before), "the files themselves were kept");
    mentions(&made, &["kept 3 shards"]);
    assert_eq!(contents(&temp.path("out")), contents(&temp.path("whole")));
    assert_eq!(names(&temp.path("")), ["out", "src", "whole"]);
}

fn finished_inodes(dir: &Path, shards: &[&str]) -> Vec<u64> {
    let inode = |s: &&str| fs::metadata(dir.join(format!("train-{s}-of-00006.tfrecord"))).unwrap().ino();
    shards.iter().map(inode).collect()
}

#[test]
fn changed_shards_are_converted_again() {
    let temp = Temp::new();
    stopped(&temp);
    let shard = temp.path("out.partial/train-00001-of-00006.tfrecord");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    fs::remove_file(temp.path("out.partial/train-00002-of-00006.tfrecord.idx")).unwrap();
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    assert_eq!(made.resumed, 1);
    assert_eq!(contents(&temp.path("out")), contents(&temp.path("whole")));
}

/// The path of an open folder becomes invalid when the folder is replaced. This happens to `.` if the current folder is
/// OUT.
#[test]
fn an_out_that_is_replaced_may_be_the_current_folder() {
    let temp = Temp::new();
    source(&temp.path("src"));
    fs::create_dir(temp.path("out")).unwrap();
    let folder = fs::File::open(temp.path("out")).unwrap();
    let here = format!("/proc/self/fd/{}", folder.as_raw_fd());
    convert("folder", &temp.path("src"), Path::new(&here), &options()).unwrap();
    assert!(!names(&temp.path("out")).iter().any(|name| name == "plan.json" || name == "finished.jsonl"));
    assert_eq!(names(&temp.path("")), ["out", "src"]);
}

/// If files with the same names have different content, no images of the earlier attempt may be used.
#[test]
fn replaced_images_are_all_converted_again() {
    let temp = Temp::new();
    stopped(&temp);
    for i in 0..60 {
        write(&temp.path(&format!("src/{}/{i}.jpg", ["a", "b"][i as usize % 2])), &jpeg(20, 20 + i, i + 100));
    }
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    assert_eq!(made.resumed, 0);
    mentions(&made, &["3 finished shards"]);
    convert("folder", &temp.path("src"), &temp.path("fresh"), &options()).unwrap();
    assert_eq!(contents(&temp.path("out")), contents(&temp.path("fresh")));
}

#[test]
fn an_image_with_another_time_costs_its_shard() {
    let temp = Temp::new();
    stopped(&temp);
    let touched = temp.path("src").join(&file_names(&temp.path("whole"), "train")[3]);
    let file = fs::File::options().write(true).open(touched).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_nanos(1);
    file.set_modified(time).unwrap();
    let made =
        convert("folder", &temp.path("src"), &temp.path("out"), &ConvertOptions { jobs: 3, ..options() }).unwrap();
    assert!(made.resumed == 2 && made.notes[0].starts_with("1 finished shard "), "{made}");
    assert_eq!(contents(&temp.path("out")), contents(&temp.path("whole")));
}

/// An archive is compared as a whole, so no shard is kept if it changes.
#[test]
fn another_archive_is_another_request() {
    let temp = Temp::new();
    let files = |salt: u32| -> Vec<(String, Vec<u8>)> {
        let image = |i: u32| if i == 50 { Vec::new() } else { jpeg(20, 20, i + salt) };
        (0..60).flat_map(|i| [(format!("{i}.jpg"), image(i)), (format!("{i}.cls"), b"0".to_vec())]).collect()
    };
    let archive = temp.path("src.tar");
    fs::write(&archive, tar("s", &files(0))).unwrap();
    let attempt = || convert("webdataset", &archive, &temp.path("out"), &options()).unwrap_err();
    assert!(matches!(attempt(), Error::Stopped { .. }));
    assert!(matches!(attempt(), Error::Stopped { .. }));
    let file = fs::File::options().write(true).open(&archive).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
    let message = attempt().to_string();
    assert!(message.contains("`files` was"), "{message}");
}

#[test]
fn another_request_is_refused_by_name() {
    let temp = Temp::new();
    let bad = stopped(&temp);
    for (options, parts) in [
        (ConvertOptions { resize: Some(9), ..options() }, &["`resize` was nothing", "now 9"][..]),
        (ConvertOptions { shards: 7, ..options() }, &["`shards` was 6", "now 7"]),
        (ConvertOptions { seed: 3, raw: true, ..options() }, &["`raw` was false", "now true", "`seed` was 0", "now 3"]),
    ] {
        let error = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap_err();
        assert!(error.is_usage(), "{error}");
        mentions(error, parts);
        assert_eq!(finished(&temp).len(), 3, "left alone");
    }
    fs::remove_file(bad).unwrap();
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(error.to_string().contains("`files` was"), "{error}");
}

#[test]
fn jobs_and_on_bad_may_change() {
    let temp = Temp::new();
    let bad = stopped(&temp);
    fs::write(&bad, b"").unwrap();
    let skip = ConvertOptions { jobs: 3, on_bad: OnBad::Skip, ..options() };
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &skip).unwrap();
    assert_eq!((made.resumed, made.skipped.len(), made.manifest.splits["train"].count), (3, 1, 59));
}

#[test]
fn an_unrelated_folder_of_that_name_is_left_alone() {
    let temp = Temp::new();
    source(&temp.path("src"));
    write(&temp.path("out.partial/thesis.tex"), b"years of work");
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(
        matches!(&error, Error::OutTaken { path, what }
            if *path == temp.path("out.partial") && what.contains("thesis.tex")),
        "{error}"
    );
    assert_eq!(names(&temp.path("out.partial")), ["thesis.tex"]);
}

#[test]
fn a_second_conversion_at_the_same_time_is_refused() {
    let temp = Temp::new();
    stopped(&temp);
    let lock = fs::File::options().append(true).open(temp.path("out.partial/finished.jsonl")).unwrap();
    lock.lock().unwrap();
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["out.partial: another conversion"]);
    assert_eq!(finished(&temp).len(), 3);
}
