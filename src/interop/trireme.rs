//! trireme's own model.h5 and checkpoints: the weights of the last step, not their averages.

use std::path::Path;

use super::error::Error;
use super::format::Format;
use super::weights::{Model, Weights};
use crate::checkpoint::{self, ModelFile};

/// What HDF5 files start with.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

pub(super) const FORMAT: Format = Format {
    name: "trireme",
    about: "trireme's model.h5 and checkpoints",
    recognises: |head| head.starts_with(SIGNATURE),
    read,
};

fn read(path: &Path) -> Result<Weights, Error> {
    let file = match ModelFile::read(path) {
        Err(checkpoint::Error::Foreign { .. } | checkpoint::Error::Rewritten { .. }) => {
            return Err(Error::Unsupported { path: path.to_path_buf(), text: FOREIGN.into() });
        }
        other => other?,
    };
    let tensors = file.layers.into_iter().flat_map(|layer| {
        let name = layer.name;
        layer.tensors.into_iter().map(move |(field, shape, values)| (format!("{name}.{field}"), shape, values))
    });
    let model = Model { network: file.network, classes: file.classes, preprocess: file.preprocess };
    Ok(Weights { path: path.to_path_buf(), format: FORMAT.name, tensors: tensors.collect(), model: Some(model) })
}

/// HDF5 of other programs.
const FOREIGN: &str = "an HDF5 file that trireme did not write: Keras's .h5 files are not read. Save the weights as \
                       safetensors with PyTorch's names (safetensors.numpy.save_file) and name that file";
