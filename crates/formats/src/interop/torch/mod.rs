//! PyTorch's `.pth`, `.pt` and `.bin`: what `torch.save` makes of a state_dict, or of a dictionary that holds one.
//!
//! Such a file is a pickle, a program for Python's unpickler that may call anything. Here an interpreter of its own runs it: it knows the
//! operations that build dictionaries, lists, numbers and texts, and the handful of classes by which PyTorch describes tensors
//! (`classes`). Any other class or operation is refused by name. Nothing is ever called.
//!
//! - `archive`: the zip of `torch.save` since PyTorch 1.6; `old`: pickles and values one behind the other, as before;
//! - `pickle`: the interpreter, over `values`; `opcode`, `classes`: what it knows;
//! - `state_dict`: the tensors by name; `tensor`: the values of one.

mod archive;
mod classes;
mod old;
mod opcode;
mod pickle;
mod state_dict;
mod tensor;
mod values;

use std::path::Path;

use state_dict::Found;

use super::error::{Error, Fault};
use super::format::Format;
use super::weights::Weights;

pub(super) const FORMAT: Format = Format {
    name: "torch",
    about: "PyTorch's .pth",
    recognises: |head| head.starts_with(b"PK\x03\x04"),
    read: |path| finish(path, archive::read(path, None)),
    read_part: Some(|path, key| finish(path, archive::read(path, Some(key)))),
};

pub(super) const OLD: Format = Format {
    name: "torch before 1.6",
    about: "PyTorch's .pth before version 1.6",
    recognises: |head| head.starts_with(old::MAGIC),
    read: |path| finish(path, old::read(path, None)),
    read_part: Some(|path, key| finish(path, old::read(path, Some(key)))),
};

fn finish(path: &Path, found: Result<Found, Fault>) -> Result<Weights, Error> {
    let (tensors, others) = found.map_err(|fault| fault.of(path))?;
    let warning = others.map(|others| format!("note: {}: {others}", path.display()));
    Ok(Weights { path: path.to_path_buf(), format: FORMAT.name, tensors, model: None, warning, keras: false })
}
