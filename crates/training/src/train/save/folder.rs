//! The output directory: whether a run may use it, how much space it needs, the marker file that shows that a run wrote it, and whether
//! that run is finished.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use backend::Backend;
use base::text::plural;
use formats::checkpoint::{self, Progress};
use loaders::safe_create::{self, NewFile};
use report::LOG;
use serde::{Deserialize, Serialize};

use super::lock::OutLock;
use super::output;
use super::resume::{self, ASIDE, Head, Logged};
use crate::error::Error;
use crate::train::agree::preflight::DiskNeed;
use crate::train::observe::watch::remove_old_status_files;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::Run;

/// Names of files and directories that a run overwrites or writes into.
const WRITTEN: [&str; 5] = ["recipe.toml", "metrics.jsonl", LOG, "checkpoints", "model.h5"];

/// Returns the sizes of the files that the run will write.
pub fn need<B: Backend>(run: &Run<B>) -> DiskNeed {
    let weights = run.graph.layout().buckets.iter().sum::<usize>() as u64 * 4;
    let averages = u64::from(run.ema.is_some());
    let model = weights * (1 + averages) + run.graph.running().len() as u64 * 4;
    let residuals = if run.reduction.settings.error_feedback { run.division.workers } else { 0 };
    let others = run.optimizer.slots().count() + residuals;
    DiskNeed { checkpoint: model + weights * others as u64, model, keep: run.recipe.checkpoint.keep as u64 }
}

/// A copy of the network's file, to be written to the output directory under the name that the recipe there uses.
#[derive(Clone, Copy, Debug)]
pub struct NetworkCopy<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

impl NetworkCopy<'_> {
    /// Writes the copy, unless a resumed run already has it. Never replaces another file.
    fn write(self, out: &Path, from: Option<&Head>) -> Result<(), Error> {
        let path = out.join(self.name);
        let cannot = Error::file("write", &path);
        match std::fs::read(&path) {
            Ok(there) if from.is_some() || there == self.bytes => return Ok(()),
            Ok(_) => {
                let path = path.display();
                return Err(Error::Usage(format!(
                    "{path} already exists and describes another network than this run has; choose another --out"
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot(error)),
        }
        let write = || {
            let mut new = NewFile::beside(&path)?;
            new.file()?.write_all(self.bytes)?;
            new.publish().map(drop)
        };
        write().map_err(cannot)
    }
}

/// Creates the output directory, checks that it is writable, locks it and writes the recipe. The directory must be new or empty, unless the
/// run resumes in it. A resumed run continues from the checkpoint `from`, or from the beginning if there is no checkpoint yet. `lock` is
/// given if the directory is already locked. Also returns what the log has about the checkpoint's step.
pub fn claim_output<B: Backend>(
    request: &TrainRequest,
    from: Option<&Head>,
    run: &Run<B>,
    network: Option<NetworkCopy<'_>>,
    lock: Option<OutLock>,
) -> Result<(OutLock, Logged), Error> {
    let (out, checkpoints) = (&request.out, request.out.join("checkpoints"));
    check(request, from)?;
    checkpoint::check_writable(out)?;
    let lock = lock.map_or_else(|| OutLock::take(out, request.steal_lock), Ok)?;
    // another run may have used the directory between the first check and the lock
    check(request, from)?;
    set(out)?;
    remove_old_status_files(out);
    checkpoint::check_writable(&checkpoints)?;
    for folder in [out, &checkpoints] {
        safe_create::remove_leftovers(folder).map_err(Error::file("tidy up", folder))?;
    }
    from.map_or(Ok(()), |head| copy_resumed(&checkpoints, head))?;
    checkpoint::write_text(&out.join("recipe.toml"), &run.recipe.to_toml()?)?;
    network.map_or(Ok(()), |network| network.write(out, from))?;
    let trained = |at: &Progress| run.ends_epoch(at) || at.step >= run.last_step(request.max_steps);
    let logged = from.map(|head| resume::rewind(out, head, trained(&head.progress))).transpose()?;
    Ok((lock, logged.unwrap_or_default()))
}

/// Copies the checkpoint that the run resumes from into its own directory. If the run ends before it writes a checkpoint, `--resume auto`
/// then continues from the same step.
fn copy_resumed(checkpoints: &Path, head: &Head) -> Result<(), Error> {
    let path = output::path_of(checkpoints, head.progress.step);
    if path.exists() {
        Ok(())
    } else {
        output::copy(&head.path, &path).map_err(Error::file("copy the checkpoint to", &path))
    }
}

/// Returns an error if the run may not use the output directory. Changes nothing. A new run needs an empty directory. A resumed run needs a
/// directory that a run wrote, or a directory in which no file would be overwritten. The proof is a marker file or, for earlier versions, a
/// checkpoint.
fn check(request: &TrainRequest, from: Option<&Head>) -> Result<(), Error> {
    let out = &request.out;
    // hidden files do not count, for example unfinished files of a killed run
    let visible = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| !e.file_name().to_string_lossy().starts_with('.'))
    };
    let busy = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(visible));
    let checkpoints = out.join("checkpoints");
    let real = |path: &Path| path.canonicalize().ok();
    let ours = |head: &Head| head.path.parent().and_then(real).is_some_and(|dir| Some(dir) == real(&checkpoints));
    let aside = |head: &Head| head.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ASIDE));
    let (shown, marker) = (out.display(), read(out)?);
    let why = match from {
        Some(head) if busy(out) && !ours(head) => {
            let file = head.path.display();
            let cure = match output::newest(&checkpoints) {
                Some(_) => "continue the run in this folder with --resume auto",
                None => "remove this folder",
            };
            format!(
                "is not empty, and {file} is not a checkpoint of the run in this folder; choose another --out, or {cure}"
            )
        }
        // the directory has the log and the checkpoints of the steps that replaced this checkpoint's steps
        Some(head) if ours(head) && aside(head) => format!(
            "has continued without {}, which was put aside when the run was resumed from an earlier step; choose another --out",
            head.path.display()
        ),
        None if busy(out) && !request.resumes_newest() => {
            "is not empty; choose another --out, remove this folder, or continue with --resume auto".into()
        }
        // the search for the newest checkpoint has found none
        None if output::newest(&checkpoints).is_some() => {
            "has a checkpoint that another run wrote after this run was started; start this run again".into()
        }
        None if out.join("model.h5").exists() => {
            "contains a model but no checkpoint to continue from; choose another --out, or remove this folder".into()
        }
        None if marker.is_none() => match WRITTEN.into_iter().find(|name| out.join(name).symlink_metadata().is_ok()) {
            // another run has just marked the folder and then written this file
            Some(_) if is_marked(out) => return Ok(()),
            Some(name) => format!(
                "contains {name}, but nothing proves that it is the output of a run (no .trireme-run, no checkpoint), so nothing in it \
                 was changed; choose another --out"
            ),
            // the other files, such as a job's log, are not overwritten
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(Error::Usage(format!("{shown} {why}")))
}

// The marker file OUT/.trireme-run shows that a run wrote the directory. It contains the run's id. In a directory without it and without a
// checkpoint, no file is changed.

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// 128 random bits in hexadecimal, drawn when the run first used OUT.
    pub run: String,
}

/// Maximum length of a marker in bytes.
const MOST: u64 = 4096;

fn path(out: &Path) -> PathBuf {
    out.join(".trireme-run")
}

/// Returns true if a directory has a marker file. [`read`] also checks its content.
pub fn is_marked(out: &Path) -> bool {
    path(out).is_file()
}

/// Reads the marker of the output directory `out`. Returns `None` if there is none. Returns an error if the file is not
/// a valid marker.
pub fn read(out: &Path) -> Result<Option<Marker>, Error> {
    let path = path(out);
    let refuse = Error::file("read", &path);
    // this also covers a directory that does not exist
    if fs::symlink_metadata(&path).is_err() {
        return Ok(None);
    }
    let Some(file) = safe_create::open_own(&path).map_err(refuse)? else { return Ok(None) };
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(refuse)?;
    let odd = |error: serde_json::Error| {
        refuse(io::Error::other(format!(
            "not a valid marker file of a run ({error}); if no run uses this folder, remove the file"
        )))
    };
    serde_json::from_str(&text).map(Some).map_err(odd)
}

/// Marks `out` as the output of a run, unless it is already marked.
pub fn set(out: &Path) -> Result<Marker, Error> {
    if let Some(marker) = read(out)? {
        return Ok(marker);
    }
    let marker = Marker { run: [safe_create::random_digits(), safe_create::random_digits()].concat() };
    let text = serde_json::to_string(&marker)
        .map_err(|e| Error::Failed(format!("cannot write the marker file .trireme-run: {e}")))?;
    checkpoint::write_text(&path(out), &format!("{text}\n"))?;
    Ok(marker)
}

/// Number of bytes to read from the end of a log. They contain its last line.
const TAIL: u64 = 65_536;

/// Returns the message for a finished run, or `None` if the run can continue. A run is finished if its checkpoint is at step `last`, its
/// model is written, and its log ends with the end event. `more` says how to continue the run. Changes no file.
pub fn finished_message(out: &Path, head: &Head, last: u64, more: &str) -> Option<String> {
    let step = head.progress.step;
    let model = output::model_path(out);
    (step >= last && model.is_file() && ended_at(out) == Some(step)).then(|| {
        let (out, steps, model) = (out.display(), plural(step, "step"), model.display());
        format!("{out}: complete, {steps}: nothing to do. The model is {model}.{more}")
    })
}

/// Returns the step of the log's last line if it is an end event.
fn ended_at(out: &Path) -> Option<u64> {
    let mut file = safe_create::open_own(&out.join("metrics.jsonl")).ok()??;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    (line["event"] == "end").then(|| line["step"].as_u64()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_marked_once() {
        let out = std::env::temp_dir().join(format!("trireme-marker-{}", std::process::id()));
        assert_eq!(read(&out).unwrap(), None);
        fs::create_dir_all(&out).unwrap();
        assert_eq!(read(&out).unwrap(), None);
        let marker = set(&out).unwrap();
        assert_eq!(marker.run.len(), 32);
        assert_eq!((set(&out).unwrap(), read(&out).unwrap()), (marker.clone(), Some(marker)));
        fs::write(path(&out), "mine").unwrap();
        let refused = |part: &str| {
            let error = read(&out).unwrap_err();
            assert!(matches!(&error, Error::File { path: file, .. } if *file == path(&out)), "{error:?}");
            support::mentions(error, &[part]);
        };
        refused("valid marker");
        fs::remove_file(path(&out)).unwrap();
        std::os::unix::fs::symlink("/proc/version", path(&out)).unwrap();
        refused("symbolic link");
        fs::remove_dir_all(out).unwrap();
    }
}
