//! What a conversion that may be killed keeps beside its shards: its request, and which shards are finished. With the same
//! request the next attempt continues behind them.
//!
//! `plan.json` holds the request, `finished.jsonl` a line for each finished shard, written once the shard is durable; a line
//! that a crash cut short is ignored. The folder is locked while a conversion runs.

use super::converted::SKIPPED;
use super::finished::Finished;
use super::shard_writer::UNFINISHED;
use crate::error::Error;
use loaders::dataset::MANIFEST;
use loaders::replace::replace;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const PLAN: &str = "plan.json";
const FINISHED: &str = "finished.jsonl";

/// The journal of the conversion in one folder.
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal in `dir` for the request `plan`, with the finished shards that are there and that `wanted` keeps.
    /// All other files of the folder are removed.
    ///
    /// # Errors
    /// Another process that converts there; a folder of another request, or with files of others.
    pub(super) fn open(
        dir: &Path,
        plan: &Map<String, Value>,
        wanted: impl Fn(&Finished) -> bool,
    ) -> Result<(Self, BTreeMap<String, Finished>), Error> {
        refuse_strangers(dir)?;
        let journal = Self::lock(dir)?;
        let kept = match read_plan(dir)? {
            Some(old) if old != *plan => return Err(other_plan(dir, &old, plan)),
            Some(_) => read_finished(&journal.path)?.into_iter().filter(|f| f.is_there(dir) && wanted(f)).collect(),
            None => Vec::new(),
        };
        let lines = kept.iter().map(line).collect::<Result<Vec<_>, _>>()?.concat();
        let as_is = fs::read(&journal.path).is_ok_and(|text| text == lines);
        let kept: BTreeMap<String, Finished> = kept.into_iter().map(|f| (f.shard.file.clone(), f)).collect();
        clear(dir, &kept)?;
        if kept.is_empty() {
            let text = serde_json::to_vec_pretty(plan).map_err(|e| Error::input(&journal.path, e.to_string()))?;
            replace(&dir.join(PLAN), &text)?;
        }
        if !as_is {
            journal.restart(&lines)?;
        }
        Ok((journal, kept))
    }

    /// Opens the file and locks it against other processes.
    fn lock(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FINISHED);
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|e| Error::io("open", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Journal { path, file: Mutex::new(file) }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::Usage(format!("{}: another conversion is running in this folder", dir.display())))
            }
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
        }
    }

    /// Notes a shard that is durable.
    pub(super) fn add(&self, finished: &Finished) -> Result<(), Error> {
        self.write(&line(finished)?)
    }

    fn restart(&self, lines: &[u8]) -> Result<(), Error> {
        let emptied = self.file.lock().unwrap_or_else(PoisonError::into_inner).set_len(0);
        emptied.map_err(|e| Error::io("write", &self.path, e))?;
        self.write(lines)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        written.map_err(|e| Error::write(&self.path, bytes.len() as u64, e))
    }

    /// Removes the shards in `dir` that are not finished: they only take space. Those that cannot be removed now are removed at
    /// the next start.
    pub(super) fn discard_unfinished(dir: &Path) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with(UNFINISHED)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the plan and the journal from `dir`: a finished data set does not need them.
    pub(super) fn remove(dir: &Path) -> Result<(), Error> {
        for name in [PLAN, FINISHED] {
            let path = dir.join(name);
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        Ok(())
    }
}

fn line(finished: &Finished) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(finished).map_err(|e| Error::input(Path::new(FINISHED), e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

fn read_plan(dir: &Path) -> Result<Option<Map<String, Value>>, Error> {
    let path = dir.join(PLAN);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| Error::input(&path, format!("not the plan of a conversion ({e}); remove this folder"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path, e)),
    }
}

/// The finished shards, up to the first line that is not whole.
fn read_finished(path: &Path) -> Result<Vec<Finished>, Error> {
    let text = fs::read(path).map_err(|e| Error::io("read", path, e))?;
    Ok(text.split(|&b| b == b'\n').map_while(|line| serde_json::from_slice(line).ok()).collect())
}

fn other_plan(dir: &Path, old: &Map<String, Value>, new: &Map<String, Value>) -> Error {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let word = |plan: &Map<String, Value>, key: &String| match plan.get(key) {
        None | Some(Value::Null) => "nothing".to_string(),
        Some(value) => value.to_string(),
    };
    let differs = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    let differs: Vec<String> =
        differs.map(|key| format!("`{key}` was {}, now {}", word(old, key), word(new, key))).collect();
    Error::Usage(format!(
        "{} holds an unfinished conversion of another request: {}; repeat that request to go on with it, or remove \
         that folder to begin anew",
        dir.display(),
        differs.join("; ")
    ))
}

/// Refuses a folder with files that no conversion has written: it only happens to have the name.
fn refuse_strangers(dir: &Path) -> Result<(), Error> {
    let failed = |e| Error::io("read", dir, e);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let ours = [PLAN, FINISHED, MANIFEST, SKIPPED].iter().any(|known| name.trim_end_matches(".tmp") == *known);
        if !ours && !name.contains(".tfrecord") {
            return Err(Error::OutTaken {
                path: dir.to_path_buf(),
                what: format!("it is needed for the conversion but holds {name}"),
            });
        }
    }
    Ok(())
}

/// Removes everything but the plan, the journal and the shards that are kept.
fn clear(dir: &Path, kept: &BTreeMap<String, Finished>) -> Result<(), Error> {
    let failed = |e| Error::io("read", dir, e);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shard = name.strip_suffix(".idx").unwrap_or(&name);
        if name != PLAN && name != FINISHED && !kept.contains_key(shard) {
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}
