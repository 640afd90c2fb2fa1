//! The data set that a model was trained on, as its recipe has it.

use std::path::{Path, PathBuf};

use loaders::{folder_of, regular};

use super::model::{self, Read};
use super::request::ModelRequest;
use crate::error::Error;

/// Returns the data set named in the run's recipe.toml, for a run that has no model yet. Returns `None` while the recipe is missing.
pub fn of_run(run: &Path) -> Option<PathBuf> {
    let folder = if run.extension().is_some_and(|end| end == "h5") { folder_of(run) } else { run };
    let text = regular::read_to_string(&folder.join("recipe.toml")).ok()?;
    in_recipe(&text)
}

fn in_recipe(text: &str) -> Option<PathBuf> {
    let recipe = text.parse::<toml::Table>().ok()?;
    recipe.get("data")?.as_str().filter(|data| !data.is_empty()).map(PathBuf::from)
}

/// The folder of the data set in the recipe of the requested model.
///
/// # Errors
/// For a file that is no model, and a recipe without a data set.
pub fn data(request: &ModelRequest) -> Result<PathBuf, Error> {
    let Read { model, .. } = model::read(request)?;
    in_recipe(&model.recipe).ok_or_else(|| {
        Error::Usage(format!("{}: its recipe names no data set; give one with --data", request.file.display()))
    })
}
