//! Writes a trained network as a file that other programs open.
//!
//! - `network`: the layers with the shapes of their inputs and outputs, which `plan` computes. `trained`: the network
//!   with its weights. `fold`: merges batch norms into the layers before them.
//! - [`torch`]: a safetensors file with PyTorch's names, and a Python file that builds the same module.
//! - [`onnx`]: a graph of opset 17. [`keras`]: Keras's own layers as `.keras` or `.h5`, and the Keras config in
//!   `model.h5`.
//! - `format`: formats, settings and errors.
//!
//! `interop/ops` has the form of each op in each format. If a format cannot express an op, the error names the layer.

mod fold;
pub mod format;
pub mod keras;
pub(super) mod network;
pub mod onnx;
mod plan;
pub mod torch;
pub(super) mod trained;

pub use format::{Error, Format, HDF5, Settings};
pub use trained::Trained;

use std::path::{Path, PathBuf};

use loaders::overwrite;

#[derive(Debug, Default, PartialEq)]
pub struct Exported {
    pub files: Vec<PathBuf>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Checks whether `model` may be exported to `out`. Does not read the model.
///
/// # Errors
/// Returns [`Error::Name`] if the format does not allow the name, and [`Error::Exists`] if a file exists and `force` is
/// not set. Returns [`Error::Output`] if the file has another format or is the model itself, or if the directory is not
/// writable.
pub fn check(model: &Path, out: &Path, settings: &Settings) -> Result<(), Error> {
    for (path, content) in settings.format.files(out)? {
        if !settings.force && path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path });
        }
        overwrite::check(&path, content, &[model]).map_err(Error::Output)?;
    }
    Ok(())
}

/// Writes a trained network to `out`, and for PyTorch also a Python file next to it. Overwrites existing files, so call
/// [`check`] first.
///
/// # Errors
/// Returns [`Error::Name`] if the format does not allow the name, [`Error::Op`] if the format cannot express a layer,
/// [`Error::Network`] if the weights do not fit the network or the options, [`Error::Half`] if a weight is too large
/// for 16 bits, [`Error::TooLarge`] if an ONNX file would be too large, and other errors if writing fails.
pub fn write(mut trained: Trained, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    let files: Vec<PathBuf> = settings.format.files(out)?.into_iter().map(|(path, _)| path).collect();
    let mut notes = Vec::new();
    trained.restore_targets()?;
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
        Format::Safetensors => {
            torch::write(&trained, &files[0], &files[1], settings.number())?;
            notes.extend(torch::unfit_name(&files[1]));
        }
        Format::Onnx => notes.extend(onnx::write(&trained, out, settings)?),
        Format::Keras => keras::write(&trained, out, settings.number())?,
    }
    Ok(Exported { files, notes })
}
