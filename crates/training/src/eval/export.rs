//! A model file as a file of another program.

use std::path::Path;

use formats::interop::export;
use formats::interop::export::{Exported, Settings, Trained};

use super::chosen::chosen;
use super::model::{Read, read};
use super::request::ModelRequest;
use crate::error::Error;
use crate::train::plan::network::of_model;
use crate::train::save::model;

/// Exports the requested model to `out`.
///
/// # Errors
/// For a file that is no model, a file that would be lost, a layer that the format cannot express, and what the disk refused.
pub fn export(request: &ModelRequest, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    export::check(&chosen(request)?.file, out, settings)?;
    let Read { model, mut notes } = read(request)?;
    let net = of_model(&model)?;
    model::check(&model, &model.layers, &net)?;
    let exported = export::write(Trained::new(net, model)?, out, settings)?;
    notes.extend(exported.notes);
    Ok(Exported { notes, ..exported })
}
