//! Tests folders with links or files that have names used by a command. The targets of links must not change.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, Error, convert, stats};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::mentions;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 2, jobs: 1, progress: false, ..ConvertOptions::default() }
}

/// Converts a folder `src` of twelve photos to a data set `name` and returns its path.
fn made(temp: &Temp, name: &str) -> PathBuf {
    (0..12).for_each(|i| {
        write(&temp.path("src").join(format!("{}/{i}.jpg", ["a", "b"][i as usize % 2])), &jpeg(20, 20 + i, i))
    });
    convert("folder", &temp.path("src"), &temp.path(name), &options()).unwrap();
    temp.path(name)
}

fn victim(temp: &Temp) -> PathBuf {
    write(&temp.path("victim"), b"precious");
    temp.path("victim")
}

fn assert_untouched(victim: &Path) {
    assert_eq!(fs::read(victim).unwrap(), b"precious");
    assert!(!victim.is_symlink());
}

#[test]
fn temporary_names_lead_nowhere() {
    let temp = Temp::new();
    let (dir, victim) = (made(&temp, "set"), victim(&temp));
    symlink(&victim, dir.join("dataset.json.tmp")).unwrap();
    stats(&dir, "train", 1).unwrap().write().unwrap();
    assert_untouched(&victim);
    for shard in ["train-00000-of-00002.tfrecord.idx", "train-00001-of-00002.tfrecord.idx"] {
        fs::remove_file(dir.join(shard)).unwrap();
        symlink(&victim, dir.join(format!("{shard}.tmp"))).unwrap();
    }
    index(&dir).unwrap();
    assert_untouched(&victim);
    assert!(dir.join("train-00001-of-00002.tfrecord.idx").is_file());
}

/// A finished data set happens to have the name of the temporary folder, directly or through a link.
#[test]
fn a_finished_data_set_is_not_an_unfinished_conversion() {
    let temp = Temp::new();
    let finished = made(&temp, "finished");
    let before = contents(&finished);
    for linked in [true, false] {
        let partial = temp.path("out.partial");
        if linked {
            symlink(&finished, &partial).unwrap()
        } else {
            fs::rename(&finished, &partial).unwrap()
        }
        let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
        let why = if linked { "a link" } else { "no conversion plan" };
        assert!(
            matches!(&error, Error::OutTaken { path, what } if *path == partial && what.contains(why)),
            "{why}: {error}"
        );
        assert_eq!(contents(if linked { &finished } else { &partial }), before);
        if linked {
            fs::remove_file(&partial).unwrap();
        }
    }
}

/// Files that do not belong to the request are kept, even next to its plan.
#[test]
fn a_strangers_shard_is_left_alone() {
    let temp = Temp::new();
    made(&temp, "set");
    write(&temp.path("src/a/bad.jpg"), b"");
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    mentions(&error, &["src/a/bad.jpg: ", "0 bytes"]);
    let partial = temp.path("out.partial");
    if !partial.exists() {
        fs::create_dir(&partial).unwrap();
    }
    write(&partial.join("train-00000-of-00099.tfrecord"), b"mine");
    let held = names(&partial);
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(
        matches!(&error, Error::OutTaken { path, what }
            if *path == partial && what.contains("train-00000-of-00099.tfrecord")),
        "{error}"
    );
    assert_eq!(names(&partial), held);
}

/// A link to another file has the name of the journal. The conversion must not write to it.
#[test]
fn a_journal_that_is_a_link() {
    let temp = Temp::new();
    made(&temp, "set");
    let victim = victim(&temp);
    fs::create_dir(temp.path("out.partial")).unwrap();
    symlink(&victim, temp.path("out.partial/finished.jsonl")).unwrap();
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    assert!(error.to_string().contains("finished.jsonl"), "{error}");
    assert_untouched(&victim);
}
