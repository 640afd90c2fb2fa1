//! Locks on the outputs of commands other than `train`. The lock on the folder of a run is tested in folder.rs, and the
//! lock on a table of predictions in predict.rs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::program::{Folder, compile_c, run};

/// Starts a process that locks the file `path`, and describes it there as a process on another host. It ends when its
/// standard input is closed.
fn locked_elsewhere(folder: &Folder, path: &str) -> Child {
    let program = folder.at("ending");
    compile_c("tests/runs/ending.c", &program, &["-Wall", "-Wextra", "-Werror", "-pthread"]);
    let holder = serde_json::json!({
        "host": "n9", "boot": "another", "process": 4711, "ticks": 0, "since": 0, "job": null,
    });
    fs::write(path, holder.to_string()).unwrap();
    let mut process = Command::new(program).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    process
}

#[test]
fn a_conversion_on_another_host_is_not_disturbed() {
    let folder = Folder::new();
    for class in ["a", "b"] {
        fs::create_dir_all(folder.at(&format!("photos/{class}"))).unwrap();
        let picture = image::GrayImage::from_pixel(8, 8, image::Luma([class.as_bytes()[0]]));
        picture.save(folder.at(&format!("photos/{class}/0.png"))).unwrap();
    }
    let (photos, out, lock) = (folder.at("photos"), folder.at("out"), folder.at(".out.trireme-lock"));
    let convert = || run(0, &["data", "convert", "folder", &photos, &out, "--shards", "1"]);
    let mut holder = locked_elsewhere(&folder, &lock);
    convert().failed(2, &[&out, "process 4711 on n9", "another OUT", &format!("remove {lock}")]);
    assert!(!Path::new(&format!("{out}.partial")).exists());
    assert!(fs::read_to_string(&lock).unwrap().contains("n9"));
    // ends the holder, and then follows the advice of the message
    holder.wait().unwrap();
    fs::remove_file(&lock).unwrap();
    convert().succeeded();
    assert!(Path::new(&out).join("dataset.json").is_file() && !Path::new(&lock).exists());
}
