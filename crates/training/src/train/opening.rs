//! Opens the recipe and the data set of a training. With `--stage`, it opens a copy of the data set.

use std::path::{Path, PathBuf};

use recipe::ScoredSplits;

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::agree::staging;
use crate::train::observe::watch::{Activity, Watch};
use crate::train::plan::request::TrainRequest;
use crate::train::plan::source::Source;

/// Opens the recipe and the data set. With `--stage`, the ranks of the `session` first copy the data set together. Without a session, this
/// is the only rank.
pub(super) fn open(request: &TrainRequest, session: Option<&Session>, watch: &Watch) -> Result<Source, Error> {
    watch.set_activity(Activity::Reading);
    let opened = open_files(request, session, watch);
    watch.set_activity(Activity::Starting);
    opened
}

fn open_files(request: &TrainRequest, session: Option<&Session>, watch: &Watch) -> Result<Source, Error> {
    let loaded = Source::recipe(request);
    let Some(under) = &request.stage else {
        let loaded = loaded?;
        let data = PathBuf::from(&loaded.recipe.data);
        return Source::open(loaded, &data);
    };
    let loaded = match session {
        Some(session) => session.agree(loaded)?,
        None => loaded?,
    };
    let recipe = &loaded.recipe;
    let splits = |names: &[&str]| {
        let scored = ScoredSplits::of_run(recipe.eval_split.as_deref(), names)?;
        Ok(["train".to_string()].into_iter().chain(scored.names()).collect())
    };
    watch.set_activity(Activity::Staging);
    let dir = staging::stage(session, Path::new(&recipe.data), under, splits)?;
    watch.set_activity(Activity::Reading);
    Source::open(loaded, &dir)
}
