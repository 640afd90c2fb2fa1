//! Reads and writes weights and networks in the formats of other programs. Also reads the weights in files that trireme
//! wrote.
//!
//! - [`read`] recognises a file by its first bytes and reads its tensors. [`FORMATS`] lists the formats.
//! - `hdf5`: model.h5, checkpoints and Keras files. `safetensors`. `torch`: `.pth` files, with a pickle interpreter
//!   that executes nothing.
//! - `weights`: the result of reading, and the errors. `number`: the types of values.
//! - [`onnx`]: an ONNX graph as a network with its weights.
//! - [`export`]: writes a trained network as a file of another program.
//! - `ops`: how each op is written in the formats of other programs.
//!
//! A file may come from an untrusted source. Lengths are checked against the file before memory is allocated, nothing
//! in a file is executed, and an unsupported part is an error that names it. To add a format, write one file here and
//! add one line to [`FORMATS`].
//!
//! This module does not decide which tensor initialises which layer of a network.

pub mod export;
mod hdf5;
mod number;
pub mod onnx;
mod ops;
mod safetensors;
#[cfg(test)]
mod tests;
mod torch;
mod weights;

pub use weights::{Error, ExportedModel, Format, Weights};

use std::os::unix::fs::FileExt;
use std::path::Path;

use loaders::regular;

/// All formats that [`read`] recognises.
pub const FORMATS: &[Format] = &[hdf5::HDF5_FORMAT, safetensors::FORMAT, torch::FORMAT, torch::OLD, ONNX];

/// The weights of an ONNX graph, for a network that already exists. The names are the same as with `model =
/// "net.onnx"`. ONNX has no signature, so a file is recognised by its first field, `ir_version` with protobuf's tag 8.
/// Writers put the fields in order, and no version has reached 32.
const ONNX: Format = Format {
    name: onnx::FORMAT_NAME,
    about: "ONNX graphs",
    recognises: |head| matches!(head, [0x08, 1..32, ..]),
    read: |path, _| {
        let onnx::Network { tensors, exported, .. } = onnx::read(path)?.network()?;
        Ok(Weights { exported, ..Weights::new(path, onnx::FORMAT_NAME, tensors) })
    },
    has_keys: false,
};

/// Number of bytes at the start of a file that identify its format.
const HEAD: usize = 64;

/// Reads a weight file, or the model.h5 in a run's folder. With a `key`, reads the set of weights that a .pth has under this key.
///
/// # Errors
/// Fails if the file cannot be read, is damaged or has an unknown format. Also fails if `key` is given but the format has only one set of
/// weights.
pub fn read(given: &Path, key: Option<&str>) -> Result<Weights, Error> {
    let path = if given.is_dir() { given.join("model.h5") } else { given.to_path_buf() };
    let refuse = |source| Error::Io { path: path.clone(), source };
    let file = regular::open(&path).map_err(refuse)?;
    let length = file.metadata().map_err(refuse)?.len().min(HEAD as u64) as usize;
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head[..length], 0).map_err(refuse)?;
    let head = &head[..length];
    let format = FORMATS.iter().find(|format| (format.recognises)(head));
    let Some(format) = format else {
        return Err(match look_alike(head) {
            Some(text) => Error::Unsupported { path, text: text.into() },
            None => Error::Unknown { path, known: known() },
        });
    };
    if key.is_some() && !format.has_keys {
        let text = "this file has only one set of weights, so a key cannot select one. Remove init.key (import: --key)";
        return Err(Error::Unsupported { path, text: text.into() });
    }
    (format.read)(&path, key)
}

/// Recognizes web pages and other files that a failed download saves in place of the weights. Returns a description and a remedy.
fn look_alike(head: &[u8]) -> Option<&'static str> {
    let text = head.trim_ascii_start().to_ascii_lowercase();
    if text.starts_with(b"version https://git-lfs") {
        return Some("this is a Git LFS pointer, not the weights; run `git lfs pull`");
    }
    if [&b"<!doctype"[..], b"<html", b"<?xml", b"<head"].iter().any(|start| text.starts_with(start)) {
        return Some("this is a web page, not a weight file; check the download address, and whether it needs a login");
    }
    (head.starts_with(&[0x1f, 0x8b])).then_some("this file is compressed with gzip; unpack it first")
}

/// Lists the formats for messages.
fn known() -> String {
    FORMATS.iter().map(|format| format.about).collect::<Vec<_>>().join(", ")
}
