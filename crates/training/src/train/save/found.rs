//! Reading a checkpoint that lies there: whether it can be gone on from, as far as the file alone tells.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use engine::graph::BuildError;
use formats::checkpoint;
use formats::checkpoint::{ModelFile, StateFile, Tensor};
use net::Tensors;
use recipe::Recipe;

use crate::error::Error;
use crate::train::plan::network::of_model;
use crate::train::save::model;

/// Reads a checkpoint, whose recipe must be one and whose tensors must be those of its network.
pub fn read(path: &Path) -> Result<StateFile, Error> {
    let state = StateFile::read(path)?;
    Recipe::from_toml(&state.model.recipe)?;
    fits(&state)?;
    Ok(state)
}

/// Whether the file is to blame for an error of [`read`], not the disk or this program, so that an older one may do better.
pub fn is_to_blame(error: &Error) -> bool {
    match error {
        // a later trireme's work would be lost without a word
        Error::Checkpoint(checkpoint::Error::Newer { .. }) => false,
        // what is no regular file, ends too early while it is read, or is a link to nowhere
        Error::Checkpoint(checkpoint::Error::Io { source, .. }) => {
            matches!(source.kind(), ErrorKind::InvalidInput | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
        }
        _ => true,
    }
}

/// An error with the file that it is of.
pub fn named(path: &Path, error: &Error) -> String {
    let (text, path) = (error.to_string(), path.display().to_string());
    if text.contains(&path) { text } else { format!("{path}: {text}") }
}

/// Refuses tensors that are not those of the network that the file names.
fn fits(state: &StateFile) -> Result<(), Error> {
    let file = &state.model;
    let net = of_model(file)?;
    model::check(file, &file.layers, &net)?;
    if !file.ema.is_empty() {
        model::check(file, &file.ema, &net)?;
    }
    let Tensors { parameters, .. } = net.tensors().map_err(BuildError::from)?;
    let expected: BTreeMap<&String, &Vec<usize>> = parameters.iter().map(|(name, shape)| (name, shape)).collect();
    let same = |list: &[Tensor]| {
        let shapes: BTreeMap<&String, &Vec<usize>> = list.iter().map(|tensor| (&tensor.0, &tensor.1)).collect();
        list.len() == expected.len() && shapes == expected
    };
    let slots = state.slots.iter().map(|(name, list)| (format!("optim/{name}"), list));
    let residuals = state.residuals.iter().enumerate().map(|(worker, list)| (format!("residuals/{worker}"), list));
    match slots.chain(residuals).find(|(_, list)| !same(list)) {
        Some((group, list)) => Err(odd(file, &group, parameters.len(), list.len())),
        None => Ok(()),
    }
}

fn odd(file: &ModelFile, group: &str, expected: usize, got: usize) -> Error {
    Error::Mismatch {
        what: format!("checkpoint of network {}: {group}", file.network),
        expected: format!("the {expected} parameters with their shapes"),
        got: format!("{got} tensors, not all of these"),
        cure: "the file was changed, or is of another version of this network".into(),
    }
}
