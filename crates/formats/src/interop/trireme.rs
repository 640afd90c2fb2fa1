//! HDF5: trireme's own model.h5 and checkpoints (the weights of the last step, not their averages), and what other programs made, which is
//! [`keras`]'s to read.

use std::path::Path;

use super::error::Error;
use super::format::Format;
use super::keras;
use super::weights::{Model, Weights};
use crate::checkpoint;
use crate::checkpoint::{ModelFile, Opened, child};

/// What HDF5 files start with.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

pub(super) const FORMAT: Format = Format {
    name: "trireme",
    about: "trireme's model.h5 and checkpoints, Keras's .h5",
    recognises: |head| head.starts_with(SIGNATURE),
    read,
    read_part: None,
};

fn read(path: &Path) -> Result<Weights, Error> {
    let opened = match ModelFile::read(path) {
        Err(checkpoint::Error::Foreign { .. }) => None,
        Err(checkpoint::Error::Rewritten { .. }) => made_anew(path)?,
        other => Some(Opened { model: other?, warning: None }),
    };
    let Some(opened) = opened else { return keras::read(path) };
    let warning = opened.told(path);
    let file = opened.model;
    let tensors = file.layers.into_iter().flat_map(|layer| {
        let name = layer.name;
        layer.tensors.into_iter().map(move |(field, shape, values)| (format!("{name}.{field}"), shape, values))
    });
    let model = Model { network: file.network, classes: file.classes, preprocess: file.preprocess };
    Ok(Weights {
        path: path.to_path_buf(),
        format: FORMAT.name,
        tensors: tensors.collect(),
        model: Some(model),
        warning,
        keras: false,
    })
}

/// A model of trireme in another layout of HDF5; none if the file is no model of trireme.
fn made_anew(path: &Path) -> Result<Option<Opened>, Error> {
    let Ok(copy) = child::rewritten(path, &[]) else { return Ok(None) };
    match ModelFile::open(&copy.name()) {
        Ok(opened) => Ok(Some(opened)),
        Err(checkpoint::Error::Foreign { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
