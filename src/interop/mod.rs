//! Weights and networks of other programs, in and out. Read are weights, of trireme's own files, too, as names with shapes and values.
//!
//! - [`read`]: recognises a file by its first bytes and reads it; [`FORMATS`] is the list;
//! - `trireme`: model.h5 and checkpoints; `keras`: HDF5 of other programs; `safetensors`; `torch`: `.pth`, by an interpreter of
//!   pickles that executes nothing;
//! - `weights`: what comes out; `number`: types of values; `error`: why a file is refused;
//! - [`onnx`]: an ONNX graph as a network with its weights, or its weights alone;
//! - [`export`]: a trained network as a file of another program.
//!
//! A file may come from anywhere. Lengths are checked against the file before memory is taken, nothing in a file is ever executed, and what
//! is not understood is refused by name. A new format is one file here and one line in [`FORMATS`].
//!
//! Not here: which tensor of a network gets which values.

mod error;
pub mod export;
mod format;
mod keras;
mod number;
pub mod onnx;
mod safetensors;
#[cfg(test)]
mod tests;
mod torch;
mod trireme;
mod weights;

pub use error::Error;
pub use format::Format;
pub use weights::{Model, Weights};

use std::path::Path;

use loaders::regular;
use std::os::unix::fs::FileExt;

/// All formats that are read.
pub const FORMATS: &[Format] = &[trireme::FORMAT, safetensors::FORMAT, torch::FORMAT, torch::OLD, onnx::FORMAT];

/// Bytes by which a format is recognised.
const HEAD: usize = 64;

/// Reads a file of weights, or the model.h5 in a run's folder.
///
/// # Errors
/// For a file that cannot be read, is of none of the formats, or is not what its format says.
pub fn read(given: &Path) -> Result<Weights, Error> {
    let path = if given.is_dir() { given.join("model.h5") } else { given.to_path_buf() };
    let refuse = |source| Error::Io { path: path.clone(), source };
    let file = regular::open(&path).map_err(refuse)?;
    let length = file.metadata().map_err(refuse)?.len().min(HEAD as u64) as usize;
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head[..length], 0).map_err(refuse)?;
    let head = &head[..length];
    let format = FORMATS.iter().find(|format| (format.recognises)(head));
    let format = format.ok_or_else(|| Error::Unknown { path: path.clone(), known: known() })?;
    (format.read)(&path)
}

/// The formats, for messages.
fn known() -> String {
    FORMATS.iter().map(|format| format.about).collect::<Vec<_>>().join(", ")
}
