//! The files that let an interrupted conversion continue: its request and the list of finished shards.
//!
//! `plan.json` holds the request. `finished.jsonl` has a line for each finished shard, written after the shard was
//! synced to disk. A line that a crash cut short is ignored. The journal is locked while a conversion runs. [`Staging`]
//! has another lock, which names its holder and also works between hosts. This one also works between threads. A later
//! attempt with the same request keeps the finished shards.
//!
//! A conversion only removes files that its own request writes, and only from a folder that contains that request. If a
//! folder contains other files or no request, it belongs to someone else and the conversion fails.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::fnv;
use loaders::dataset::MANIFEST;
use loaders::folder_of;
use loaders::replace::replace;
use loaders::safe_create;
use loaders::shard::index_path;
use loaders::stall::during;
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::dataset::{Finished, FinishedShards};
use super::order::{Order, Task};
use super::shard_writer::{UNFINISHED, explain_full};
use super::staging::Staging;
use super::summary::SKIPPED;
use crate::error::Error;
use crate::image::band_stats::Histograms;
use crate::pool;
use crate::source::{Source, Stamp};

const PLAN: &str = "plan.json";
const FINISHED: &str = "finished.jsonl";

pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Locks the journal in the folder of `staging` for the request `plan`, which writes `shards`. The lock is released
    /// when both the journal and `staging` are dropped. Returns an error if another process is converting there, if the
    /// folder belongs to a different request, or if it contains unknown files. Nothing is changed in these cases.
    pub(super) fn lock(staging: &mut Staging, plan: &Map<String, Value>, shards: &[&str]) -> Result<Self, Error> {
        let dir = &staging.dir().to_path_buf();
        let check = || match read_plan(dir)? {
            Some(old) if old != *plan => Err(other_plan(dir, &old, plan)),
            Some(_) => refuse_others(dir, |name| is_written(name, shards), ""),
            None => refuse_others(dir, |name| is_start(dir, name), " and no conversion plan"),
        };
        check()?;
        let path = dir.join(FINISHED);
        let file = safe_create::to_append(&path).map_err(|e| Error::io("open", &path, e))?;
        lock_file(&file, &path)?;
        // Check again: until the lock was taken, another process could change the folder.
        check()?;
        staging.hold(file.try_clone().map_err(|e| Error::io("open", &path, e))?);
        Ok(Journal { path, file: Mutex::new(file) })
    }

    /// Returns true if no shard is finished.
    pub(super) fn is_empty(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| meta.len() == 0)
    }

    /// Returns the finished shards in the journal's folder `dir` that exist and that `wanted` accepts, and the sum of
    /// their histograms. Removes all other files of the request `plan`.
    pub(super) fn resume(
        &self,
        dir: &Path,
        plan: &Map<String, Value>,
        mut wanted: impl FnMut(&Finished) -> Result<bool, Error>,
    ) -> Result<FinishedShards, Error> {
        let (mut kept, histograms, mut ranges) = (BTreeMap::new(), Histograms::default(), Vec::new());
        read_finished(&self.path, |mut shard, range| {
            if shard.has_files(dir) && !kept.contains_key(&shard.shard.file) && wanted(&shard)? {
                histograms.take(&mut shard.tally.bands, dir)?;
                kept.insert(shard.shard.file.clone(), shard);
                ranges.push(range);
            }
            Ok(())
        })?;
        let kept_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let as_is = fs::metadata(&self.path).is_ok_and(|meta| meta.len() == kept_bytes);
        let lines = if as_is { Vec::new() } else { read_ranges(&self.path, &ranges)? };
        clear(dir, &kept)?;
        if kept.is_empty() {
            let text = serde_json::to_vec_pretty(plan).map_err(|e| Error::input(&self.path, e.to_string()))?;
            replace(&dir.join(PLAN), &text).map_err(|e| explain_full(e, None))?;
        }
        if !as_is {
            self.restart(&lines)?;
        }
        Ok((kept, histograms))
    }

    /// Records shards that were synced to disk. `needed` is the estimated size of the data set in bytes.
    pub(super) fn add(&self, finished: &[Finished], needed: u64) -> Result<(), Error> {
        self.write(&finished.iter().map(line).collect::<Result<Vec<_>, _>>()?.concat(), Some(needed))
    }

    fn restart(&self, lines: &[u8]) -> Result<(), Error> {
        let emptied = pool::lock(&self.file).set_len(0);
        emptied.map_err(|e| Error::io("write", &self.path, e))?;
        // The size of the data set is not known yet.
        self.write(lines, None)
    }

    /// Appends lines. If the disk is full, the message contains `needed`, the size of the whole data set, because these
    /// lines need little space.
    fn write(&self, lines: &[u8], needed: Option<u64>) -> Result<(), Error> {
        let mut file = pool::lock(&self.file);
        let written = during("writing", &self.path, || file.write_all(lines).and_then(|()| file.sync_data()));
        written.map_err(|e| Error::write(&self.path, needed, e))
    }

    /// Removes unfinished shards from `dir` to free their space. If a file cannot be removed now, the next attempt
    /// removes it.
    pub(super) fn discard_unfinished(dir: &Path) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with(UNFINISHED)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the plan and the journal from `dir`. A complete data set does not need them.
    pub(super) fn remove(dir: &Path) -> Result<(), Error> {
        for name in [PLAN, FINISHED] {
            let path = dir.join(name);
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        Ok(())
    }
}

/// Locks the journal file against other processes.
fn lock_file(file: &File, path: &Path) -> Result<(), Error> {
    let other = |problem: &str| Error::Usage(format!("{}: another conversion {problem}", folder_of(path).display()));
    match file.try_lock() {
        // The lock next to OUT also works on a file system without locks.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported || is_lock_missing(&e) => Ok(()),
        // Until the file was locked, a conversion that ended could remove or publish the folder.
        Ok(()) if !safe_create::is_at(file, path) => Err(other("has just ended in this folder; repeat the command")),
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(other("is running in this folder; wait until it ends, or choose another OUT"))
        }
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path, e)),
    }
}

/// Returns true for the error of NFS if the server has no lock service.
fn is_lock_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

fn line(finished: &Finished) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(finished).map_err(|e| Error::input(Path::new(FINISHED), e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

fn read_plan(dir: &Path) -> Result<Option<Map<String, Value>>, Error> {
    let path = dir.join(PLAN);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| {
            let what = "the plan of the unfinished conversion cannot be read";
            Error::input(&path, format!("{what} ({e}); remove the folder of this file to start again"))
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path, e)),
    }
}

/// Passes each finished shard up to the first incomplete line to `found`, with the range of its line in the file. Only
/// one line is in memory at a time, because histograms make lines long.
fn read_finished(path: &Path, mut found: impl FnMut(Finished, Range<u64>) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |e| Error::io("read", path, e);
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let (mut line, mut start) = (Vec::new(), 0);
    loop {
        line.clear();
        let end = start + file.read_until(b'\n', &mut line).map_err(failed)? as u64;
        match serde_json::from_slice(&line) {
            Ok(shard) if line.ends_with(b"\n") => found(shard, start..end)?,
            _ => return Ok(()),
        }
        start = end;
    }
}

/// Returns these parts of a file, one after the other.
fn read_ranges(path: &Path, ranges: &[Range<u64>]) -> Result<Vec<u8>, Error> {
    let failed = |e| Error::io("read", path, e);
    let (file, mut bytes) = (File::open(path).map_err(failed)?, Vec::new());
    for range in ranges {
        let from = bytes.len();
        bytes.resize(from + (range.end - range.start) as usize, 0);
        file.read_exact_at(&mut bytes[from..], range.start).map_err(failed)?;
    }
    Ok(bytes)
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
        "{} contains an unfinished conversion with different settings: {}; repeat the command with the old settings to continue, or \
         remove the folder to start again",
        dir.display(),
        differs.join("; ")
    ))
}

fn names(dir: &Path) -> Result<Vec<OsString>, Error> {
    let failed = |e| Error::io("read", dir, e);
    fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect()
}

/// Returns an error if the folder has a file for which `is_own` returns false. Such a folder does not belong to the
/// conversion, although it has the name of its temporary folder. `and` completes the message.
fn refuse_others(dir: &Path, is_own: impl Fn(&OsStr) -> bool, and: &str) -> Result<(), Error> {
    let Some(name) = names(dir)?.into_iter().find(|name| !is_own(name)) else { return Ok(()) };
    let name = name.to_string_lossy();
    let what = format!("the conversion needs this folder, but it contains {name}{and}; nothing in it was changed");
    Err(Error::OutTaken { path: dir.to_path_buf(), what })
}

/// Returns true if a conversion that was killed at its start, before it wrote its plan, leaves this file.
fn is_start(dir: &Path, name: &OsStr) -> bool {
    let empty = || fs::symlink_metadata(dir.join(FINISHED)).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
    name == FINISHED && empty() || safe_create::target_of(name).is_some_and(|target| target == PLAN)
}

/// Returns true if a conversion to `shards` writes a file with this name.
fn is_written(name: &OsStr, shards: &[&str]) -> bool {
    let name = safe_create::target_of(name).unwrap_or(name).to_string_lossy();
    // Earlier versions used this ending for files being written.
    let name = name.strip_suffix(".tmp").unwrap_or(&name);
    let shard = [UNFINISHED, ".idx"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    [PLAN, FINISHED, MANIFEST, SKIPPED].contains(&name) || shards.contains(&shard)
}

/// Removes everything except the plan, the journal and the shards in `kept`. All files in the folder belong to the
/// request.
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

// Detects whether the source files of a finished shard have changed. The fingerprint is a sum of hashes of their sizes
// and modification times, so it does not depend on the order in which threads read the files.

/// Number of samples that a thread examines per task.
const SAMPLES_PER_TASK: u64 = 256;

/// Returns the contribution of a sample to its shard's fingerprint, or 0 if the sample has no file of its own.
pub(super) fn sample_stamp(source: &dyn Source, split: usize, index: u64) -> u64 {
    source.stamp(split, index).map_or(0, |stamp| stamp_hash(index, stamp))
}

/// Hashes a sample's number and its file's stamp. The values must never change, because the journal stores them.
fn stamp_hash(index: u64, Stamp { bytes, seconds, nanoseconds }: Stamp) -> u64 {
    let numbers = [index, bytes, seconds as u64, nanoseconds as u64];
    fnv::hash(numbers.map(u64::to_le_bytes).as_flattened())
}

/// Computes the fingerprint of a shard from the current state of its source files, using `jobs` threads.
pub(super) fn shard_stamp(source: &dyn Source, order: &Order, task: &Task, jobs: usize) -> Result<u64, Error> {
    let parts = usize::try_from(task.samples().div_ceil(SAMPLES_PER_TASK)).unwrap_or(usize::MAX);
    let sums = pool::run(parts, jobs, |part| {
        let start = task.positions.start + part as u64 * SAMPLES_PER_TASK;
        let mut indices = Vec::new();
        order.extend(start..task.positions.end.min(start + SAMPLES_PER_TASK), &mut indices);
        Ok(indices.into_iter().map(|index| sample_stamp(source, task.split, index)).fold(0, u64::wrapping_add))
    })?;
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}

#[cfg(test)]
mod tests {
    use support::mentions;
    use support::program::Folder;

    use super::*;

    #[test]
    fn stored_stamps_have_the_same_hash_in_every_version() {
        let stamp = Stamp { bytes: 4096, seconds: 1_700_000_000, nanoseconds: 5 };
        assert_eq!(stamp_hash(3, stamp), 0xce26_a6b5_fe86_5fe4);
        assert_ne!(stamp_hash(3, Stamp { nanoseconds: 6, ..stamp }), stamp_hash(3, stamp));
        assert_ne!(stamp_hash(3, Stamp { seconds: -1, ..stamp }), stamp_hash(4, stamp));
    }

    /// The lock is held until the folder has been removed or published. A conversion that opened the journal before must
    /// not start in a folder that is gone.
    #[test]
    fn the_lock_lasts_as_long_as_the_folder() {
        let folder = Folder::new();
        let mut staging = Staging::resumable(&folder.path().join("out")).unwrap();
        let path = staging.dir().join(FINISHED);
        let journal = Journal::lock(&mut staging, &Map::new(), &[]).unwrap();
        let other = safe_create::to_append(&path).unwrap();
        drop(journal);
        mentions(lock_file(&other, &path).unwrap_err(), &["out.partial: ", "is running", "wait"]);
        drop(staging);
        lock_file(&other, &path).unwrap();
        other.unlock().unwrap();
        fs::remove_file(&path).unwrap();
        mentions(lock_file(&other, &path).unwrap_err(), &["out.partial: ", "has just ended", "repeat"]);
    }

    /// Writing to `/dev/full` fails with ENOSPC. A journal line is short, so the message must state the size of the
    /// data set instead.
    #[test]
    fn a_full_disk_says_how_much_the_data_set_needs() {
        let path = PathBuf::from("/dev/full");
        let file = Mutex::new(File::options().write(true).open(&path).unwrap());
        let journal = Journal { path, file };
        for needed in [Some(5 << 20), None] {
            let error = journal.write(b"{}\n", needed).unwrap_err();
            assert!(matches!(&error, Error::DiskFull { needed: found, .. } if *found == needed), "{error}");
            let text = error.to_string();
            assert_eq!(text.contains("5242880 bytes (5.0 MiB)"), needed.is_some(), "{text}");
            assert_eq!(text.contains("bytes"), needed.is_some(), "{text}");
        }
    }
}
