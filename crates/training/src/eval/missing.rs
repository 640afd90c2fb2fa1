//! What to try where a model is named that is not there: which folder is missing, and which models lie near.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use loaders::text::nearest;

use crate::error::Error;

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
        runs => format!(". The newest below it: {}", newest(runs)),
    }
}

/// The model with a name like the one that was given, else the newest.
fn advice(given: &Path, models: &[PathBuf]) -> String {
    let names: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(&given.display().to_string(), &words) {
        Some(like) => format!("did you mean {like}?"),
        None if models.is_empty() => "none lies near; give the output folder of a run, or the model.h5 in it".into(),
        None => format!("the newest runs and models near it: {}", newest(models)),
    }
}

fn newest(models: &[PathBuf]) -> String {
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
