//! A trained network as a file that other programs open.
//!
//! - `network`: layers with the shapes around them, `trained`: with their weights, `fold`: batch norms folded into the layers before
//!   them;
//! - [`torch`]: safetensors with PyTorch's names, and a Python file that builds the same module;
//! - [`onnx`]: a graph of opset 17; [`keras`]: Keras's own layers, as `.keras` or `.h5`, and what `model.h5` says to Keras;
//! - `about`: what is said of the model beside its weights; `number`: types of values in files; `pads`: windows with explicit padding.
//!
//! Each format has one table of ops, `ops.rs` in its folder. An op without a line there is refused by the name of its layer.

mod about;
pub mod error;
mod fold;
mod format;
pub mod keras;
mod network;
mod number;
pub mod onnx;
mod pads;
pub mod torch;
mod trained;

pub use error::Error;
pub use format::{Format, Settings};
pub use trained::Trained;

use std::path::{Path, PathBuf};

/// Files that were written, and what there is to say of them.
#[derive(Debug, Default, PartialEq)]
pub struct Exported {
    /// The files.
    pub files: Vec<PathBuf>,
    /// What a user should know, a sentence each.
    pub notes: Vec<String>,
}

/// Writes a trained network to `out`, and for PyTorch a Python file beside it.
///
/// # Errors
/// [`Error::Op`] for a layer that the format has no form for; [`Error::Half`] for a weight that 16 bits do not hold; [`Error::Exists`] where
/// a file is there already; [`Error::Io`].
pub fn write(mut trained: Trained, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    let files = settings.format.files(out)?;
    if let Some(path) = files.iter().find(|path| !settings.force && path.symlink_metadata().is_ok()) {
        return Err(Error::Exists { path: path.clone() });
    }
    let mut notes = Vec::new();
    if settings.fold || settings.format != Format::Keras {
        trained.with_scales();
    }
    if settings.fold {
        notes.push(fold::fold(&mut trained)?);
    }
    if settings.half {
        trained.fits_half()?;
    }
    match settings.format {
        Format::Safetensors => torch::write(&trained, &files[0], &files[1], settings.number())?,
        Format::Onnx => notes.extend(onnx::write(&trained, out, settings)?),
        Format::Keras => keras::write(&trained, out, settings.number())?,
    }
    Ok(Exported { files, notes })
}
