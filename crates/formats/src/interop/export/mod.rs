//! A trained network as a file that other programs open.
//!
//! - `network`: layers with the shapes around them; `trained`: with their weights, and batch norms folded into the layers before them;
//! - [`torch`]: safetensors with PyTorch's names, and a Python file that builds the same module;
//! - [`onnx`]: a graph of opset 17; [`keras`]: Keras's own layers, as `.keras` or `.h5`, and what `model.h5` says to Keras;
//! - `format`: the formats, settings and errors, and what is said of the model beside its weights.
//!
//! `interop/ops` has the form of each op in each format. An op without a form is refused by the name of its layer.

pub mod format;
pub mod keras;
pub(super) mod network;
pub mod onnx;
pub mod torch;
pub(super) mod trained;

pub use format::{Error, Format, HDF5, Settings};
pub use trained::Trained;

use std::path::{Path, PathBuf};

use loaders::overwrite;

/// Files that were written, and what there is to say of them.
#[derive(Debug, Default, PartialEq)]
pub struct Exported {
    /// The files.
    pub files: Vec<PathBuf>,
    /// What a user should know, a sentence each.
    pub notes: Vec<String>,
}

/// Whether `model` may be exported to `out`, before it is read.
///
/// # Errors
/// [`Error::Name`]; [`Error::Exists`] where a file is there already; [`Error::Output`] for one that is of another format or is the model
/// itself, and for a folder that takes no files.
pub fn check(model: &Path, out: &Path, settings: &Settings) -> Result<(), Error> {
    for (path, content) in settings.format.files(out)? {
        if !settings.force && path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path });
        }
        overwrite::check(&path, content, &[model]).map_err(Error::Output)?;
    }
    Ok(())
}

/// Writes a trained network to `out`, and for PyTorch a Python file beside it. What is there already is replaced: see [`check`].
///
/// # Errors
/// [`Error::Name`]; [`Error::Op`] for a layer that the format has no form for; [`Error::Half`] for a weight that 16 bits do not hold;
/// [`Error::Io`].
pub fn write(mut trained: Trained, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    let files: Vec<PathBuf> = settings.format.files(out)?.into_iter().map(|(path, _)| path).collect();
    let mut notes = Vec::new();
    if settings.fold || settings.format != Format::Keras {
        trained.with_scales();
    }
    if settings.fold {
        notes.push(trained::fold(&mut trained)?);
    }
    if settings.half {
        trained.fits_half()?;
    }
    match settings.format {
        Format::Safetensors => {
            torch::write(&trained, &files[0], &files[1], settings.number())?;
            notes.extend(torch::unfit_name(&files[1]));
        }
        Format::Onnx => notes.extend(onnx::write(&trained, out, settings)?),
        Format::Keras => keras::write(&trained, out, settings.number())?,
    }
    Ok(Exported { files, notes })
}
