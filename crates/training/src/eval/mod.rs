//! Uses of a model: scoring a split, classifying pictures, scoring the files of a run as they appear, export and
//! import.

mod classes;
pub mod find_model;
pub mod findings;
pub mod follow;
pub mod image_reader;
pub mod import;
pub mod model;
pub mod pictures;
pub mod predict;
pub mod predict_many;
mod prediction_file;
pub mod request;
pub mod score;

use std::path::Path;

use find_model::find_model;
use formats::interop::export::{self, Exported, Settings, Trained};
use model::{LoadedModel, read};
use request::ModelRequest;

use crate::error::Error;
use crate::train::plan::network::of_model;
use crate::train::save;

/// Exports the requested model to `out`. Returns an error if the file is not a model, another file would be lost, the
/// format cannot express a layer, or `out` cannot be written.
pub fn export(request: &ModelRequest, out: &Path, settings: &Settings) -> Result<Exported, Error> {
    export::check(&find_model(request)?.file, out, settings)?;
    let LoadedModel { model, mut notes } = read(request)?;
    let net = of_model(&model)?;
    save::model::check(&model, &model.layers, &net)?;
    let exported = export::write(Trained::new(net, model)?, out, settings)?;
    notes.extend(exported.notes);
    Ok(Exported { notes, ..exported })
}
