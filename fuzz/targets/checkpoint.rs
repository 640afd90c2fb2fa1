//! Fuzzes the HDF5 reader. Compiles the reader's sources without MPI and without the HDF5 library, and reads everything
//! that the layouts of model files and checkpoints contain.

#![allow(dead_code)] // the program uses more of these sources

#[path = "../../crates/formats/src/checkpoint/checksum.rs"]
mod checksum;
#[path = "../../crates/formats/src/checkpoint/error.rs"]
pub mod error;
#[path = "../../crates/formats/src/checkpoint/reader/mod.rs"]
mod reader;

use std::env::temp_dir;
use std::{fs, process};

use error::Error;
use reader::{Group, group};

/// Groups that contain lists of names or only attributes, in the layouts of model files and of checkpoints.
const GROUPS: [&str; 11] = [
    "model_weights",
    "trireme",
    "trireme/ema",
    "trireme/scores",
    "params",
    "bn",
    "ema/params",
    "ema/bn",
    "optim",
    "optim/momentum_buffer",
    "progress",
];

/// Attributes that list the names of arrays or groups in the same group.
const LISTS: [&str; 4] = ["layer_names", "weight_names", "layers", "names"];

/// Reads a file with these bytes.
///
/// # Panics
///
/// Panics if the number of values does not match a shape, or if there are more values than the file can contain.
pub fn h5(bytes: &[u8]) {
    // fuzz/run.sh sets the temporary folder to one in memory, if possible
    let path = temp_dir().join(format!("trireme-fuzz-{}", process::id()));
    if fs::write(&path, bytes).is_err() || checksum::append(&path).is_err() {
        return;
    }
    let Ok(root) = checksum::open(&path).and_then(|checked| group::open(checked, &path)) else { return };
    attributes(&root);
    let mut values = 0;
    for name in GROUPS {
        let Ok(group) = root.open(name) else { continue };
        attributes(&group);
        values += members(&group, 1);
    }
    assert!(4 * values <= bytes.len(), "{values} values in a file of {} bytes", bytes.len());
}

/// Reads the arrays that a group's lists name. If a list names a group, reads that group's members too, up to `deeper`
/// levels. Returns the total number of values.
fn members(group: &Group, deeper: usize) -> usize {
    let mut values = 0;
    for name in LISTS.iter().filter_map(|list| group.texts(list).ok()).flatten() {
        match group.array(&name) {
            Ok((shape, array)) => {
                assert_eq!(shape.iter().product::<usize>(), array.len(), "{name} of shape {shape:?}");
                values += array.len();
            }
            Err(_) if deeper > 0 => values += group.open(&name).map_or(0, |inner| members(&inner, deeper - 1)),
            Err(_) => {}
        }
    }
    values
}

/// Tries to read each attribute as every type that it may have.
fn attributes(group: &Group) {
    for name in group.attribute_names() {
        let read: [Result<(), Error>; 8] = [
            group.text(name).map(drop),
            group.texts(name).map(drop),
            group.number::<f32>(name).map(drop),
            group.number::<f64>(name).map(drop),
            group.number::<u32>(name).map(drop),
            group.number::<u64>(name).map(drop),
            group.numbers::<f64>(name).map(drop),
            group.numbers::<u64>(name).map(drop),
        ];
        assert!(read.iter().filter(|read| read.is_ok()).count() <= 1, "{name} can be read as more than one type");
    }
}
