//! Which model file is read where a run or a folder is named, what to try if there is none, and on which data set a model was trained.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use formats::checkpoint::{Best, StateFile};
use loaders::text::nearest;
use loaders::{folder_of, regular};

use super::request::ModelRequest;
use crate::error::Error;
use crate::train::save::output;

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
    output::list(&run.join("checkpoints")).ok()?.into_iter().next().map(|(_, path)| path)
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
    let file = output::path_of(&run.join("checkpoints"), step);
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

/// Models that a message names at most.
const NAMED: usize = 3;
/// Folders in folders that are looked into.
const DEEPEST: usize = 3;
/// Entries that are looked at in all: no message waits for a large file system.
const ENTRIES: usize = 2_000;

/// The error for a model or a run that is not at `given`.
pub fn missing(given: &Path) -> Error {
    let way: Vec<&Path> = given.ancestors().collect();
    // the empty path, the last of a relative one, is the current folder
    let there = way.iter().skip(1).position(|folder| listed(folder).is_dir()).map_or(way.len() - 1, |at| at + 1);
    let what = match there {
        0 | 1 => "there is no such file or folder".to_string(),
        _ => format!("there is no folder {}", way[there - 1].display()),
    };
    let folder = way[there];
    // what lies below the root is not near
    let mut models =
        if folder.has_root() && folder.parent().is_none() { Vec::new() } else { below(folder, is_h5(given)) };
    if models.is_empty() && !folder.as_os_str().is_empty() {
        models = below(Path::new(""), is_h5(given));
    }
    Error::Failed(format!("{}: {what}; {}", given.display(), advice(given, &models)))
}

/// The runs below a folder that is none itself, as the tail of a message.
pub fn runs_below(folder: &Path) -> String {
    match below(folder, false).as_slice() {
        [] => String::new(),
        runs => format!(". The newest below it: {}", list_newest(runs)),
    }
}

/// The model with a name like the one that was given, else the newest.
fn advice(given: &Path, models: &[PathBuf]) -> String {
    let names: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(&given.display().to_string(), &words) {
        Some(like) => format!("did you mean {like}?"),
        None if models.is_empty() => "none lies near; give the output folder of a run, or the model.h5 in it".into(),
        None => format!("the newest runs and models near it: {}", list_newest(models)),
    }
}

fn list_newest(models: &[PathBuf]) -> String {
    let names: Vec<String> = models.iter().take(NAMED).map(|model| model.display().to_string()).collect();
    names.join(", ")
}

/// What lies below a folder, the newest first: with `files` model files, checkpoints aside, else output folders of runs.
fn below(folder: &Path, files: bool) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut left = ENTRIES;
    let mut waiting = VecDeque::from([(folder.to_path_buf(), 0)]);
    while let Some((folder, depth)) = waiting.pop_front() {
        for entry in fs::read_dir(listed(&folder)).into_iter().flatten().flatten().take(left) {
            left -= 1;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            // of what a link leads to: runs may lie on another file system
            let Ok(about) = fs::metadata(&path) else { continue };
            let is_run = about.is_dir() && (path.join("model.h5").is_file() || path.join("checkpoints").is_dir());
            if (files && about.is_file() && is_h5(&path)) || (!files && is_run) {
                found.push((about.modified().unwrap_or(SystemTime::UNIX_EPOCH), path.clone()));
            }
            let hidden = name.to_string_lossy().starts_with('.');
            if about.is_dir() && depth < DEEPEST && !hidden && name != "checkpoints" {
                waiting.push_back((path, depth + 1));
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

fn is_h5(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "h5")
}

/// The name by which the system knows a folder.
fn listed(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Returns the data set named in the run's recipe.toml, for a run that has no model yet. Returns `None` while the recipe is missing.
pub fn of_run(run: &Path) -> Option<PathBuf> {
    let folder = if run.extension().is_some_and(|end| end == "h5") { folder_of(run) } else { run };
    let text = regular::read_to_string(&folder.join("recipe.toml")).ok()?;
    in_recipe(&text)
}

/// The data set that a recipe names.
pub fn in_recipe(text: &str) -> Option<PathBuf> {
    let recipe = text.parse::<toml::Table>().ok()?;
    recipe.get("data")?.as_str().filter(|data| !data.is_empty()).map(PathBuf::from)
}
