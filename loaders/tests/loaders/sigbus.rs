//! If a mapped shard is truncated, the process ends with a message. Other SIGBUS signals are passed on. Each case runs
//! in a child process, which is this binary with an environment variable set.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use crate::common::{self, SPEC, TestData, assert_mentions};
use loaders::{Io, Loader, Mapping, Options, Shuffle, TrainOrder};

const CASE: &str = "LOADERS_SIGBUS_CASE";

fn child(case: &str) -> Output {
    // The child ends without cleaning up, so its files are in a directory that is removed here.
    let folder = common::folder();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sigbus::child_process", "--nocapture"])
        .env(CASE, case)
        .env("TMPDIR", &folder)
        .output()
        .unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    output
}

/// Does nothing unless one of the tests below has started it.
#[test]
fn child_process() {
    match std::env::var(CASE).as_deref() {
        Ok("ours") => read_a_shard_cut_short(),
        Ok("loader") => load_a_shard_cut_short(),
        Ok("source") => read_a_source_cut_short(),
        Ok("foreign") => {
            loaders::sigbus::install().unwrap();
            read_a_foreign_mapping_cut_short();
        }
        Ok("chained") => {
            exit_7_on_sigbus();
            loaders::sigbus::install().unwrap();
            loaders::sigbus::install().unwrap();
            read_a_foreign_mapping_cut_short();
        }
        _ => {}
    }
}

fn read_a_shard_cut_short() {
    loaders::sigbus::install().unwrap();
    loaders::sigbus::set_rank(3);
    // 40 records of about 400 bytes are more than three pages of 4096.
    let data = TestData::noise(40, 1, SPEC);
    let split = data.split().unwrap();
    let file = OpenOptions::new().write(true).open(data.shard(0)).unwrap();
    file.set_len(4096).unwrap();
    println!("record 0: {}", split.record(0, &mut Vec::new()).is_ok());
    let _ = split.record(39, &mut Vec::new());
    println!("still here");
}

/// Truncates a file that a conversion has mapped, and reads past its new end.
fn read_a_source_cut_short() {
    loaders::sigbus::install().unwrap();
    let path = common::folder().join("images.bin");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let source = Mapping::open("file", &path).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let mut bytes = [0; 10];
    println!("inside: {}", source.read(0, &mut bytes));
    source.read(9_000, &mut bytes);
    println!("still here");
}

/// Truncates a shard that a loader thread has mapped, and continues to load batches.
fn load_a_shard_cut_short() {
    loaders::sigbus::install().unwrap();
    let data = TestData::noise(4000, 1, SPEC);
    let split = data.lazy();
    let order = TrainOrder::new(1, 4000, 8, 1, 0..1, (0, 0), 3).shuffled(Shuffle::Window(1), &[4000]);
    let options = Options { slots: 2, open: 3, io: Io::Mmap, ..Options::default() };
    let mut loader = Loader::start(split, data.pipeline(&["normalize"], SPEC), Box::new(order), options).unwrap();
    println!("batch 0: {}", loader.next().unwrap().is_some());
    OpenOptions::new().write(true).open(data.shard(0)).unwrap().set_len(4096).unwrap();
    while let Ok(Some(_)) = loader.next() {}
    println!("still here");
}

fn read_a_foreign_mapping_cut_short() {
    // A shard is mapped too. The message must not name the shard.
    let data = TestData::noise(40, 1, SPEC);
    let _split = data.split().unwrap();
    let path = data.dir.join("foreign");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: the file is truncated below, because the test needs a SIGBUS.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    file.set_len(0).unwrap();
    println!("read {}", std::hint::black_box(map[5000]));
}

fn exit_7_on_sigbus() {
    extern "C" fn exit_7(_signal: libc::c_int) {
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(7) }
    }
    // SAFETY: installs a handler with the right signature.
    unsafe {
        libc::signal(libc::SIGBUS, exit_7 as *const () as libc::sighandler_t);
    }
}

/// Runs a case that must exit with 1 when it reads past the new end of the file. Returns its stdout and stderr.
fn ended_at_the_read(case: &str) -> (String, String) {
    let output = child(case);
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(!out.contains("still here"), "{out}");
    (out, err)
}

#[test]
fn a_shard_cut_short_is_named() {
    let (out, err) = ended_at_the_read("ours");
    assert_mentions(&out, &["record 0: true"]);
    assert_mentions(&err, &["rank 3", "shard", "train-00000-of-00001.tfrecord", "byte offset", "cut short"]);
}

#[test]
fn a_truncated_source_is_named_as_a_file_not_a_shard() {
    let (out, err) = ended_at_the_read("source");
    assert_mentions(&out, &["inside: true"]);
    assert_mentions(&err, &["images.bin", "byte offset", "10000 bytes", "cut short", "restore"]);
    assert!(err.contains("file /") && !err.contains("shard /"), "{err}");
}

#[test]
fn a_shard_that_a_loader_mapped_is_named() {
    let (out, err) = ended_at_the_read("loader");
    assert_mentions(&out, &["batch 0: true"]);
    assert_mentions(&err, &["shard", "train-00000-of-00001.tfrecord", "byte offset", "cut short"]);
}

#[test]
fn other_bus_errors_still_kill_the_process() {
    let output = child("foreign");
    assert_eq!(output.status.signal(), Some(libc::SIGBUS));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!err.contains("shard"), "{err}");
}

#[test]
fn other_bus_errors_reach_the_previous_handler() {
    assert_eq!(child("chained").status.code(), Some(7));
}
