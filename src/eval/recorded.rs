//! The data set that a model was trained on, as its recipe has it.

use super::model::{self, Read};
use super::request::ModelRequest;
use crate::error::Error;
use std::path::PathBuf;

/// The folder of the data set in the recipe of the requested model.
///
/// # Errors
/// For a file that is no model, and a recipe without a data set.
pub fn data(request: &ModelRequest) -> Result<PathBuf, Error> {
    let Read { model, .. } = model::read(request)?;
    let recipe = model.recipe.parse::<toml::Table>().ok();
    let data = recipe.as_ref().and_then(|recipe| recipe.get("data")?.as_str()).filter(|data| !data.is_empty());
    data.map(PathBuf::from).ok_or_else(|| {
        Error::Usage(format!("{}: its recipe names no data set; give one with --data", request.file.display()))
    })
}
