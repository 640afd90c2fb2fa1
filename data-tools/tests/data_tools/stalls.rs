//! Tests that a hung file system is reported, and that the command ends if this is requested.

use crate::common::{Temp, pictures};
use data_tools::{ConvertOptions, convert, verify, watch};
use loaders::stall::StallLimits;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};
use support::disk::with_permission_to_mount;
use support::mentions;
use support::program::{PATIENCE, start};

/// Environment variables of the child process: the command to run and its paths.
const COMMAND: &str = "STALLS_COMMAND";
const PATH: &str = "STALLS_PATH";
const OUT: &str = "STALLS_OUT";

/// A user-space file system with a server that never answers. Dropping it makes all calls fail.
struct Hung {
    /// The connection to the kernel. Closing it ends the file system.
    _server: File,
    dir: PathBuf,
}

impl Hung {
    fn mount(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let server = server.unwrap_or_else(|e| panic!("/dev/fuse: {e}; `--skip {TEST}` leaves this test out"));
        // `mount` passes the descriptor of its standard input to the kernel.
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "hung"])
            .arg(dir)
            .stdin(server.try_clone().unwrap())
            .output()
            .unwrap();
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        Hung { _server: server, dir: dir.to_path_buf() }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

/// The test [`a_hung_file_system_is_named`] runs this in a child process.
#[test]
#[ignore = "waits for ever; another test starts it"]
fn in_the_child() {
    let path = PathBuf::from(env::var_os(PATH).unwrap());
    let limits = StallLimits { warn: Some(Duration::from_millis(500)), abort: Some(Duration::from_secs(4)) };
    let _watch = watch(limits);
    let options = ConvertOptions { progress: false, ..ConvertOptions::default() };
    let out = PathBuf::from(env::var_os(OUT).unwrap());
    let result = match env::var(COMMAND).unwrap().as_str() {
        "csv" => convert("csv", &path, &out, &options).map(drop),
        "folder" => convert("folder", &path, &out, &options).map(drop),
        _ => verify(&path, 1).map(drop),
    };
    panic!("it came back: {result:?}");
}

const TEST: &str = "stalls::a_hung_file_system_is_named";

#[test]
fn a_hung_file_system_is_named() {
    with_permission_to_mount(TEST, commands_name_a_hung_file_system);
}

fn commands_name_a_hung_file_system() {
    let temp = Temp::new();
    let hung = Hung::mount(&temp.path("mnt"));
    let images = temp.path("images/a");
    fs::create_dir_all(&images).unwrap();
    fs::write(images.join("0.png"), pictures::png(8, 8, 1)).unwrap();
    let cases = [
        ("csv", "mnt/labels.csv", "out", "mnt/labels.csv"),
        ("folder", "mnt", "out", "mnt"),
        ("folder", "images", "mnt/out", "mnt/out"),
        ("verify", "mnt/data", "out", "mnt/data"),
    ];
    for (command, path, out, named) in cases {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "stalls::in_the_child", "--ignored", "--nocapture"]);
        child.env(COMMAND, command).env(PATH, temp.path(path)).env(OUT, temp.path(out));
        let ended = start(child).wait(PATIENCE);
        let text = &ended.stderr;
        assert_eq!(ended.status.code(), Some(1), "{command}: {text}");
        let path = temp.path(named);
        // a disk of this machine may be slow, too, so other warnings may come first
        let is_about = |line: &&str| line.starts_with("warning: ") && line.contains(&*path.to_string_lossy());
        mentions(text.lines().find(is_about).unwrap_or_else(|| panic!("{text}")), &["not answered"]);
        mentions(text, &["error: ", "--stall-abort"]);
    }
    drop(hung);
}
