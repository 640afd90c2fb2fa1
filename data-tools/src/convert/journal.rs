//! What a conversion that may be killed keeps beside its shards: its request, and which shards are finished. With the same
//! request the next attempt continues behind them.
//!
//! `plan.json` holds the request, `finished.jsonl` a line for each finished shard, written once the shard is durable; a line
//! that a crash cut short is ignored. The folder is locked while a conversion runs.
//!
//! A conversion removes nothing but files that its own request writes, in a folder that holds that request: any other file, and a folder
//! without a request, belong to somebody else and are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use loaders::dataset::MANIFEST;
use loaders::replace::replace;
use loaders::safe_create;
use loaders::shard::index_path;
use loaders::stall::during;
use serde_json::{Map, Value};

use super::converted::SKIPPED;
use super::dataset::Finished;
use super::order::{Order, Task};
use super::shard_writer::{UNFINISHED, explain_full};
use crate::error::Error;
use crate::pool;
use crate::source::Source;

const PLAN: &str = "plan.json";
const FINISHED: &str = "finished.jsonl";

/// The journal of the conversion in one folder.
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal in `dir` for the request `plan`, which makes these `shards`, with the finished shards that are there and that
    /// `wanted` keeps. Other files of the request that are there are removed.
    ///
    /// # Errors
    /// Another process that converts there; a folder of another request, or with files of others. Nothing is changed then.
    pub(super) fn open(
        dir: &Path,
        plan: &Map<String, Value>,
        shards: &[&str],
        mut wanted: impl FnMut(&Finished) -> Result<bool, Error>,
    ) -> Result<(Self, BTreeMap<String, Finished>), Error> {
        let check = || match read_plan(dir)? {
            Some(old) if old != *plan => Err(other_plan(dir, &old, plan)),
            Some(old) => refuse_strangers(dir, shards).map(|()| Some(old)),
            None => refuse_all(dir).map(|()| None),
        };
        check()?;
        let journal = Self::lock(dir)?;
        // with the lock nobody changes the folder any more
        let mut kept = Vec::new();
        if check()?.is_some() {
            for shard in read_finished(&journal.path)? {
                if shard.is_there(dir) && wanted(&shard)? {
                    kept.push(shard);
                }
            }
        }
        let lines = kept.iter().map(line).collect::<Result<Vec<_>, _>>()?.concat();
        let as_is = fs::read(&journal.path).is_ok_and(|text| text == lines);
        let kept: BTreeMap<String, Finished> = kept.into_iter().map(|f| (f.shard.file.clone(), f)).collect();
        clear(dir, &kept)?;
        if kept.is_empty() {
            let text = serde_json::to_vec_pretty(plan).map_err(|e| Error::input(&journal.path, e.to_string()))?;
            replace(&dir.join(PLAN), &text).map_err(|e| explain_full(e, None))?;
        }
        if !as_is {
            journal.restart(&lines)?;
        }
        Ok((journal, kept))
    }

    /// Opens the file and locks it against other processes.
    fn lock(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FINISHED);
        let file = safe_create::to_append(&path).map_err(|e| Error::io("open", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Journal { path, file: Mutex::new(file) }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::Usage(format!("{}: another conversion is running in this folder", dir.display())))
            }
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
        }
    }

    /// Notes shards that are durable, of a data set that takes about `needed` bytes.
    pub(super) fn add(&self, finished: &[Finished], needed: u64) -> Result<(), Error> {
        self.write(&finished.iter().map(line).collect::<Result<Vec<_>, _>>()?.concat(), Some(needed))
    }

    fn restart(&self, lines: &[u8]) -> Result<(), Error> {
        let emptied = self.file.lock().unwrap_or_else(PoisonError::into_inner).set_len(0);
        emptied.map_err(|e| Error::io("write", &self.path, e))?;
        // how much the data set takes is estimated later
        self.write(lines, None)
    }

    /// Appends lines; the message of a full disk tells the bytes `needed` of the data set, which these few do not.
    fn write(&self, lines: &[u8], needed: Option<u64>) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = during("writing", &self.path, || file.write_all(lines).and_then(|()| file.sync_data()));
        written.map_err(|e| Error::write(&self.path, needed, e))
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

/// The names in a folder.
fn names(dir: &Path) -> Result<Vec<OsString>, Error> {
    let failed = |e| Error::io("read", dir, e);
    fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect()
}

/// Refuses a folder with files that the conversion into these `shards` does not write: it only happens to have the name.
fn refuse_strangers(dir: &Path, shards: &[&str]) -> Result<(), Error> {
    match names(dir)?.into_iter().find(|name| !is_written(name, shards)) {
        Some(name) => Err(stranger(dir, &name, "")),
        None => Ok(()),
    }
}

/// Refuses a folder without a request that is more than a conversion leaves which was killed at its start.
fn refuse_all(dir: &Path) -> Result<(), Error> {
    let is_start = |name: &OsString| {
        let empty = || fs::symlink_metadata(dir.join(FINISHED)).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        name == FINISHED && empty() || safe_create::target_of(name).is_some_and(|target| target == PLAN)
    };
    match names(dir)?.into_iter().find(|name| !is_start(name)) {
        Some(name) => Err(stranger(dir, &name, " and no plan of a conversion")),
        None => Ok(()),
    }
}

/// Whether the conversion into these `shards` writes a file of this name.
fn is_written(name: &OsStr, shards: &[&str]) -> bool {
    let name = safe_create::target_of(name).unwrap_or(name).to_string_lossy();
    // what earlier versions called a file that is being written
    let name = name.strip_suffix(".tmp").unwrap_or(&name);
    let shard = [UNFINISHED, ".idx"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    [PLAN, FINISHED, MANIFEST, SKIPPED].contains(&name) || shards.contains(&shard)
}

fn stranger(dir: &Path, name: &OsStr, and: &str) -> Error {
    let name = name.to_string_lossy();
    Error::OutTaken {
        path: dir.to_path_buf(),
        what: format!("it is needed for the conversion but holds {name}{and}, and nothing in it was touched"),
    }
}

/// Removes everything but the plan, the journal and the shards that are kept; all of it is the request's.
fn clear(dir: &Path, kept: &BTreeMap<String, Finished>) -> Result<(), Error> {
    let indexes: BTreeSet<PathBuf> = kept.keys().map(|shard| index_path(Path::new(shard))).collect();
    for name in names(dir)? {
        let own = name == PLAN || name == FINISHED || indexes.contains(Path::new(&name));
        if !own && !name.to_str().is_some_and(|name| kept.contains_key(name)) {
            let path = dir.join(&name);
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}

// Whether the files of a finished shard are still those that it was made of: a sum over their sizes and times of modification, which does
// not depend on the order in which threads read them.

/// Samples that a thread looks at in one go.
const TOGETHER: u64 = 256;

/// What a sample adds to the sum of its shard; nothing where its source has no files of samples.
pub(super) fn of_sample(source: &dyn Source, split: usize, index: u64) -> u64 {
    let Some(stamp) = source.stamp(split, index) else { return 0 };
    let mut hasher = DefaultHasher::new();
    (index, stamp).hash(&mut hasher);
    hasher.finish()
}

/// The sum over the samples of a shard, as their files are now, on `jobs` threads.
pub(super) fn of_shard(source: &dyn Source, order: &Order, task: &Task, jobs: usize) -> Result<u64, Error> {
    let parts = usize::try_from(task.samples().div_ceil(TOGETHER)).unwrap_or(usize::MAX);
    let sums = pool::run(parts, jobs, |part| {
        let start = task.positions.start + part as u64 * TOGETHER;
        let mut indices = Vec::new();
        order.extend(start..task.positions.end.min(start + TOGETHER), &mut indices);
        Ok(indices.into_iter().map(|index| of_sample(source, task.split, index)).fold(0, u64::wrapping_add))
    })?;
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/full` answers every write with ENOSPC. A line of the journal is short, and what is missing is room for the data set.
    #[test]
    fn a_full_disk_says_how_much_the_data_set_needs() {
        let path = PathBuf::from("/dev/full");
        let file = Mutex::new(File::options().write(true).open(&path).unwrap());
        let journal = Journal { path, file };
        let message = |needed| journal.write(b"{}\n", needed).unwrap_err().to_string();
        let known = message(Some(5 << 20));
        assert!(known.contains("the data set needs about 5242880 bytes (5.0 MiB): free some space"), "{known}");
        let unknown = message(None);
        assert!(unknown.contains("no space left") && unknown.contains("): free some space"), "{unknown}");
        assert!(!unknown.contains("needs about"), "{unknown}");
    }
}
