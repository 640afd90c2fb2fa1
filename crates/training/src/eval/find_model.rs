//! Finds the model file for a run or a path, suggests alternatives if it is missing, and finds the data set of a model.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base::text::nearest;
use formats::checkpoint::{Best, StateFile};
use loaders::{folder_of, regular};

use super::request::ModelRequest;
use crate::error::Error;
use crate::train::save::output;

/// A model file and a note about the choice.
pub struct FoundModel {
    pub file: PathBuf,
    /// One line for the user, if the file is not the given path.
    pub note: Option<String>,
}

/// How often the search is repeated if a run that is in progress writes and removes checkpoints meanwhile.
const TRIES: u32 = 10;

/// Finds the requested model file. For the directory of a run this is its model.h5 or, while the run is not finished,
/// its newest checkpoint. With `request.best` it is always the best checkpoint. Returns an error if the path does not
/// exist, or if the directory has no such file.
pub fn find_model(request: &ModelRequest) -> Result<FoundModel, Error> {
    let newest = || output::newest(&request.file.join("checkpoints"));
    for _ in 1..TRIES {
        let before = newest();
        let found = find_once(request);
        if found.is_ok() || newest() == before {
            return found;
        }
    }
    find_once(request)
}

fn find_once(request: &ModelRequest) -> Result<FoundModel, Error> {
    let given = &request.file;
    if given.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(missing(given));
    }
    if request.best {
        return best(given);
    }
    if !given.is_dir() {
        return Ok(FoundModel { file: given.clone(), note: None });
    }
    let file = given.join("model.h5");
    if file.exists() {
        let note = Some(format!("model: {}", file.display()));
        return Ok(FoundModel { file, note });
    }
    let file = output::newest(&given.join("checkpoints")).ok_or_else(|| {
        let (folder, file) = (given.display(), file.display());
        Error::Failed(format!(
            "{folder} is a folder without {file} and without checkpoints; give the output folder of a run, or a model file{}",
            runs_below(given)
        ))
    })?;
    let note = Some(format!("model: {}, the newest checkpoint, because the run has no model.h5 yet", file.display()));
    Ok(FoundModel { file, note })
}

/// Finds the best checkpoint of a run. Its step is recorded in the newest checkpoint.
fn best(run: &Path) -> Result<FoundModel, Error> {
    let folder = run.display();
    if !run.is_dir() {
        return Err(Error::Usage(format!("--best: {folder} is not a folder; give the output folder of a run")));
    }
    let newest = output::newest(&run.join("checkpoints")).ok_or_else(|| {
        Error::Failed(format!(
            "--best: {folder} has no checkpoints; give the output folder of a run, or leave --best out"
        ))
    })?;
    let best = StateFile::read_progress(&newest)?.best;
    let Best { by, score, step } = best.ok_or_else(|| {
        Error::Failed(format!(
            "--best: {folder} has no scores yet: its newest checkpoint {} records no scored epoch. To use the newest model, leave --best \
             out",
            newest.display()
        ))
    })?;
    let file = output::path_of(&run.join("checkpoints"), step);
    if !file.exists() {
        return Err(Error::Failed(format!(
            "--best: {} is missing. It was the checkpoint with the best {by} ({score:.4}). To use the newest model, leave --best out",
            file.display()
        )));
    }
    let averages = if by.starts_with("ema.") { "; --ema uses the averages that were scored" } else { "" };
    let note = Some(format!("model: {}, the best by {by} ({score:.4}){averages}", file.display()));
    Ok(FoundModel { file, note })
}

/// Maximum number of models in a message.
const MAX_NAMES: usize = 3;
/// Maximum depth of the search for models.
const MAX_DEPTH: usize = 3;
/// Maximum number of directory entries to visit, so that a message does not wait for a large file system.
const MAX_ENTRIES: usize = 2_000;

/// Returns the error for a path without a model or run. It suggests a similar name or the newest models nearby.
pub fn missing(given: &Path) -> Error {
    let ancestors: Vec<&Path> = given.ancestors().collect();
    // for a relative path, the last ancestor is the empty path, which means the current directory
    let existing = ancestors
        .iter()
        .skip(1)
        .position(|folder| or_current_dir(folder).is_dir())
        .map_or(ancestors.len() - 1, |at| at + 1);
    let what = match existing {
        0 | 1 => "there is no such file or folder".to_string(),
        _ => format!("there is no folder {}", ancestors[existing - 1].display()),
    };
    let folder = ancestors[existing];
    // do not search the whole file system from the root
    let mut models =
        if folder.has_root() && folder.parent().is_none() { Vec::new() } else { find_below(folder, is_h5(given)) };
    if models.is_empty() && !folder.as_os_str().is_empty() {
        models = find_below(Path::new(""), is_h5(given));
    }
    Error::Failed(format!("{}: {what}; {}", given.display(), advice(given, &models)))
}

/// Lists the newest runs below a directory that is not a run itself. The text is appended to a message.
pub fn runs_below(folder: &Path) -> String {
    match find_below(folder, false).as_slice() {
        [] => String::new(),
        runs => format!(". The newest runs below this folder: {}", list_newest(runs)),
    }
}

/// Suggests the model with the most similar name, or the newest models.
fn advice(given: &Path, models: &[PathBuf]) -> String {
    let names: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(&given.display().to_string(), &words) {
        Some(like) => format!("did you mean {like}?"),
        None if models.is_empty() => {
            "no model was found nearby; give the output folder of a run, or the model.h5 in it".into()
        }
        None => format!("the newest runs and models nearby: {}", list_newest(models)),
    }
}

fn list_newest(models: &[PathBuf]) -> String {
    let names: Vec<String> = models.iter().take(MAX_NAMES).map(|model| model.display().to_string()).collect();
    names.join(", ")
}

/// Searches below a directory and returns what it finds, newest first: model files that are not checkpoints if `files` is set, otherwise
/// output directories of runs.
fn find_below(folder: &Path, files: bool) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut left = MAX_ENTRIES;
    let mut waiting = VecDeque::from([(folder.to_path_buf(), 0)]);
    while let Some((folder, depth)) = waiting.pop_front() {
        for entry in fs::read_dir(or_current_dir(&folder)).into_iter().flatten().flatten().take(left) {
            left -= 1;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            // follows links, because runs may be on another file system
            let Ok(about) = fs::metadata(&path) else { continue };
            let is_run = about.is_dir() && (path.join("model.h5").is_file() || path.join("checkpoints").is_dir());
            if (files && about.is_file() && is_h5(&path)) || (!files && is_run) {
                found.push((about.modified().unwrap_or(SystemTime::UNIX_EPOCH), path.clone()));
            }
            let hidden = name.to_string_lossy().starts_with('.');
            if about.is_dir() && depth < MAX_DEPTH && !hidden && name != "checkpoints" {
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

/// Replaces the empty path by `.`.
fn or_current_dir(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Returns the data set named in the run's recipe.toml, for a run that has no model yet. Returns `None` while the recipe is missing.
pub fn data_of_run(run: &Path) -> Option<PathBuf> {
    let folder = if run.extension().is_some_and(|end| end == "h5") { folder_of(run) } else { run };
    let text = regular::read_to_string(&folder.join("recipe.toml")).ok()?;
    data_in_recipe(&text)
}

pub fn data_in_recipe(text: &str) -> Option<PathBuf> {
    let recipe = text.parse::<toml::Table>().ok()?;
    recipe.get("data")?.as_str().filter(|data| !data.is_empty()).map(PathBuf::from)
}
