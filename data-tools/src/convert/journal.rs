//! What a conversion that may be killed keeps beside its shards: what was asked for, and which shards are
//! finished. With the same request the next attempt goes on behind them.
//!
//! `plan.json` holds the request, `finished.jsonl` a line for each finished shard, written once the shard is
//! durable; a line that a crash cut is not believed. The folder is locked while a conversion is at work.

use crate::convert::shard_writer::UNFINISHED;
use crate::convert::tally::Tally;
use crate::error::Error;
use loaders::ShardManifest;
use loaders::dataset::MANIFEST;
use loaders::replace::replace;
use loaders::shard::index_path;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// File of a data set with a line for each image that was left out.
pub(crate) const SKIPPED: &str = "skipped.txt";

const PLAN: &str = "plan.json";
const FINISHED: &str = "finished.jsonl";

/// A finished shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Its entry in `dataset.json`.
    pub shard: ShardManifest,
    /// Bytes of its index.
    pub index_bytes: u64,
    /// What was learnt of its samples.
    pub tally: Tally,
}

impl Done {
    /// The finished shard in `dir`.
    pub(crate) fn new(dir: &Path, shard: ShardManifest, tally: Tally) -> Result<Self, Error> {
        let index = index_path(&dir.join(&shard.file));
        let index_bytes = size(&index).map_err(|e| Error::io("read", &index, e))?;
        Ok(Done { shard, index_bytes, tally })
    }

    /// Whether shard and index are there, of the sizes that they had: a copy cut short is noticed, a flipped bit is
    /// for `verify`.
    fn is_there(&self, dir: &Path) -> bool {
        let path = dir.join(&self.shard.file);
        size(&path).is_ok_and(|n| n == self.shard.bytes)
            && size(&index_path(&path)).is_ok_and(|n| n == self.index_bytes)
    }
}

fn size(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|meta| meta.len())
}

/// The journal of the conversion in one folder.
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal in `dir` for the request `plan`, and says which shards `wanted` keeps. All other files of
    /// the folder are removed.
    ///
    /// # Errors
    /// Another process at work there; a folder that was begun for another request.
    pub(crate) fn open(
        dir: &Path,
        plan: &Map<String, Value>,
        wanted: impl Fn(&Done) -> bool,
    ) -> Result<(Self, BTreeMap<String, Done>), Error> {
        refuse_strangers(dir)?;
        let path = dir.join(FINISHED);
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|e| Error::io("open", &path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Usage(format!("{}: another conversion is at work in this folder", dir.display())));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
        }
        let kept = match read_plan(dir)? {
            Some(old) if old != *plan => return Err(other_plan(dir, &old, plan)),
            Some(_) => read_finished(&path)?.into_iter().filter(|d| d.is_there(dir) && wanted(d)).collect(),
            None => Vec::new(),
        };
        let lines = kept.iter().map(line).collect::<Result<Vec<_>, _>>()?.concat();
        let as_is = fs::read(&path).is_ok_and(|text| text == lines);
        let kept: BTreeMap<String, Done> = kept.into_iter().map(|d| (d.shard.file.clone(), d)).collect();
        clear(dir, &kept)?;
        if kept.is_empty() {
            let text = serde_json::to_vec_pretty(plan).map_err(|e| Error::input(&path, e.to_string()))?;
            replace(&dir.join(PLAN), &text)?;
        }
        let journal = Journal { path, file: Mutex::new(file) };
        if !as_is {
            journal.restart(&lines)?;
        }
        Ok((journal, kept))
    }

    /// Notes a shard that is durable.
    pub(crate) fn add(&self, done: &Done) -> Result<(), Error> {
        self.write(&line(done)?)
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

    /// Removes the shards in `dir` that are not finished: they would only take room. What cannot be removed is at the
    /// next start.
    pub(crate) fn discard_unfinished(dir: &Path) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with(UNFINISHED)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes what a finished data set in `dir` does not need.
    pub(crate) fn remove(dir: &Path) -> Result<(), Error> {
        for name in [PLAN, FINISHED] {
            let path = dir.join(name);
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        Ok(())
    }
}

fn line(done: &Done) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(done).map_err(|e| Error::input(Path::new(FINISHED), e.to_string()))?;
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

/// The lines up to the first that is not whole.
fn read_finished(path: &Path) -> Result<Vec<Done>, Error> {
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

/// A folder that happens to have the name is nobody's to clear.
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

/// Removes everything but plan, journal and the shards that are kept.
fn clear(dir: &Path, kept: &BTreeMap<String, Done>) -> Result<(), Error> {
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
