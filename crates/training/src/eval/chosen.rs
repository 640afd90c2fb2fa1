//! Which file a model is read from, where a run's folder was named.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use formats::checkpoint::{Best, StateFile};

use super::missing::{missing, runs_below};
use super::request::ModelRequest;
use crate::error::Error;
use crate::train::save::saver;

/// The file, and what to tell a user of the choice.
pub struct Chosen {
    /// The model file or checkpoint.
    pub file: PathBuf,
    /// One line, where it is not what was named.
    pub note: Option<String>,
}

/// The model file that is meant: of a run's folder its model.h5 or, where the run is not over, its newest checkpoint; or, where it is
/// requested, its best checkpoint.
///
/// # Errors
/// For what is not there, and a folder that has none of them.
pub fn chosen(request: &ModelRequest) -> Result<Chosen, Error> {
    let given = &request.file;
    if given.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(missing(given));
    }
    if request.best {
        return best(given);
    }
    if !given.is_dir() {
        return Ok(Chosen { file: given.clone(), note: None });
    }
    let file = given.join("model.h5");
    if file.exists() {
        let note = Some(format!("model: {}", file.display()));
        return Ok(Chosen { file, note });
    }
    let file = newest(given).ok_or_else(|| {
        let (folder, file) = (given.display(), file.display());
        Error::Failed(format!(
            "{folder} is a folder without {file} and without checkpoints; give the output folder of a run, or a model file{}",
            runs_below(given)
        ))
    })?;
    let note = Some(format!("model: {}, the newest checkpoint: the run has no model.h5 yet", file.display()));
    Ok(Chosen { file, note })
}

fn newest(run: &Path) -> Option<PathBuf> {
    saver::list(&run.join("checkpoints")).ok()?.into_iter().next().map(|(_, path)| path)
}

/// The best checkpoint of a run, as its newest one knows it.
fn best(run: &Path) -> Result<Chosen, Error> {
    let shown = run.display();
    if !run.is_dir() {
        return Err(Error::Usage(format!("--best: {shown} is no folder; give the output folder of a run")));
    }
    let newest = newest(run).ok_or_else(|| {
        Error::Failed(format!(
            "--best: {shown} has no checkpoints; give the output folder of a run, or leave --best out"
        ))
    })?;
    let best = StateFile::read_progress(&newest)?.best;
    let Best { by, score, step } = best.ok_or_else(|| {
        Error::Failed(format!(
            "--best: no epoch of {shown} has been scored up to {}; leave --best out for the newest model",
            newest.display()
        ))
    })?;
    let file = saver::path_of(&run.join("checkpoints"), step);
    if !file.exists() {
        return Err(Error::Failed(format!(
            "--best: {} is gone, the checkpoint with the best {by} ({score:.4}); leave --best out for the newest model",
            file.display()
        )));
    }
    let averages = if by.starts_with("ema.") { "; --ema takes the averages that were scored" } else { "" };
    let note = Some(format!("model: {}, the best by {by} ({score:.4}){averages}", file.display()));
    Ok(Chosen { file, note })
}
