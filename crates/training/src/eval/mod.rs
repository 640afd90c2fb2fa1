//! Using a model: scoring a split, naming pictures, scoring the files of a run as they appear, handing it to other programs, and taking it
//! from them.

pub mod chosen;
mod classes;
pub mod findings;
pub mod follow;
pub mod import;
pub mod model;
pub mod pictures;
pub mod predict;
pub mod request;
pub mod score;

use std::path::Path;

use chosen::chosen;
use formats::interop::export::{self, Exported, Settings, Trained};
use model::{Read, read};
use request::ModelRequest;

use crate::error::Error;
use crate::train::plan::network::of_model;
use crate::train::save;

/// Exports the requested model to `out`.
///
/// # Errors
/// For a file that is no model, a file that would be lost, a layer that the format cannot express, and what the disk refused.
pub fn export(request: &ModelRequest, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    export::check(&chosen(request)?.file, out, settings)?;
    let Read { model, mut notes } = read(request)?;
    let net = of_model(&model)?;
    save::model::check(&model, &model.layers, &net)?;
    let exported = export::write(Trained::new(net, model)?, out, settings)?;
    notes.extend(exported.notes);
    Ok(Exported { notes, ..exported })
}
