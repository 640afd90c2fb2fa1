//! The program's sources of the HDF5 reader, with all that it needs, and neither MPI nor HDF5's library; and a walk through a file that
//! asks for what the layouts of model files and checkpoints ask for.

#![allow(dead_code)] // a part of the program

#[path = "../../crates/formats/src/checkpoint/checksum.rs"]
mod checksum;
#[path = "../../crates/formats/src/checkpoint/error.rs"]
pub mod error;
#[path = "../../crates/formats/src/checkpoint/reader/mod.rs"]
mod reader;
#[path = "../../crates/formats/src/checkpoint/version.rs"]
mod version;

use std::env::temp_dir;
use std::{fs, process};

use error::Error;
use reader::{Group, group};

/// Groups of both layouts that hold lists of names, or attributes alone.
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

/// Attributes with the names of arrays or groups beside them.
const LISTS: [&str; 4] = ["layer_names", "weight_names", "layers", "names"];

/// Reads a file of these bytes.
///
/// # Panics
/// If values do not fit their shape, or are more than the file holds.
pub fn h5(bytes: &[u8]) {
    // the script of the fuzzer puts it into memory
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
    assert!(4 * values <= bytes.len(), "{values} values out of {} bytes", bytes.len());
}

/// Arrays that a group's lists name, and the members of the groups that they name; gives the number of their values.
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

/// Reads each attribute as all that it may be.
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
        assert!(read.iter().filter(|read| read.is_ok()).count() <= 1, "{name} is of several types");
    }
}
