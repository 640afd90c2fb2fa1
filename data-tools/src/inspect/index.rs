//! Makes TFRecords that other programs wrote readable. Writes an index for each shard and a `dataset.json` if there is none.
//!
//! Shards are named `SPLIT-00000-of-01024`, with or without `.tfrecord`, or `SPLIT.tfrecord`, or as TensorFlow Datasets
//! names them. Their records use the keys of TensorFlow's ImageNet scripts or of TensorFlow Datasets.

use super::manifest;
use super::shard_files::{self, ShardFile};
use super::walk::{self, ScannedShard};
use crate::convert::summary::splits_json;
use crate::error::Error;
use crate::options::OnBad;
use crate::progress::Progress;
use crate::{dir, pool, text};
use loaders::dataset::MANIFEST;
use loaders::{Manifest, shard};
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What [`index`] has found and written.
#[derive(Debug, Clone)]
pub struct IndexSummary {
    pub dir: PathBuf,
    /// Number of shards. Each of them now has an index.
    pub shards: u64,
    /// Number of indexes that were missing or wrong and have been written.
    pub written: u64,
    pub records: u64,
    /// The existing or new `dataset.json`.
    pub manifest: Manifest,
    /// True if `dataset.json` was written.
    pub made_manifest: bool,
    pub notes: Vec<String>,
    /// Time spent reading and measuring records, summed over all threads.
    pub(crate) scanning: Duration,
    pub elapsed: Duration,
}

pub(crate) struct IndexOptions<'a> {
    /// The folder in which to look for a list of class names.
    pub names: &'a Path,
    /// True to write indexes. False if the shards already have them.
    pub write: bool,
    /// Number of threads. 0 means one per core.
    pub jobs: usize,
    pub progress: bool,
    /// The shards. If `None`, they are found by file name.
    pub shards: Option<Vec<ShardFile>>,
    /// Shard names mapped to splits.
    pub split_map: &'a [(String, String)],
    /// [`OnBad::Skip`] accepts classes that occur only outside `train`.
    pub on_bad: OnBad,
    /// Advice for data sets that only the `dataset.json` of their conversion can describe.
    pub cure: &'a str,
}

/// Writes `<shard>.idx` for each shard in `dir` with a missing or wrong index. If there is no `dataset.json`, also
/// writes it:
/// - The classes come from the list in `label.labels.txt` or `labels.txt`. `label_offset` is 1 if the lowest label is 1
///   and the list begins with `background`, which is then left out.
/// - Without such a list, there is a class for each label up to the highest. Its name comes from `image/class/text`.
///   `label_offset` is 1 if the lowest label is 1.
/// - The mean and standard deviation are measured on `train`, or on the first split if there is no `train`.
///
/// # Errors
///
/// Returns an error if there are no shards, a shard is missing or a record is damaged, or if the counts in an existing
/// `dataset.json` are wrong. If there is no `dataset.json`, also returns an error in these cases:
/// - an image has other values than bytes, or is neither grey nor RGB
/// - a label is negative or too large, or records disagree about its name
/// - a label does not fit the list of names
/// - a record has no label, more than one label, or targets
/// - `train` lacks a class that another split has
///
/// Writes nothing before it has read every shard. `split_map` maps shard names to splits. [`OnBad::Skip`] accepts classes
/// that `train` lacks.
pub fn index(dir: &Path, split_map: &[(String, String)], on_bad: OnBad) -> Result<IndexSummary, Error> {
    let cure = "such a data set needs the dataset.json that its conversion wrote: copy it from the original data set, \
                or for records of another program write it as docs/formats.md describes";
    let how = IndexOptions { names: dir, write: true, jobs: 0, progress: true, shards: None, split_map, on_bad, cure };
    index_with_options(dir, &how)
}

/// Works like [`index`], with the options in `how`.
pub(crate) fn index_with_options(dir: &Path, how: &IndexOptions<'_>) -> Result<IndexSummary, Error> {
    let started = Instant::now();
    dir::check(dir, "expected a folder with TFRecord shards")?;
    let known = dir.join(MANIFEST).exists().then(|| Manifest::read(dir)).transpose()?;
    let made_manifest = known.is_none();
    let shards = match &known {
        Some(manifest) => shard_files::from_manifest(manifest),
        None => how.shards.clone().map_or_else(|| shard_files::discover(dir, how.split_map), Ok)?,
    };
    let scanning = Mutex::new(Duration::ZERO);
    let scanned = scan_all(dir, &shards, made_manifest, how, &scanning)?;
    let write_indexes = || if how.write { write_indexes(dir, &shards, &scanned) } else { Ok(0) };
    let mut notes = Vec::new();
    let (manifest, written) = match known {
        Some(known) => {
            let written = write_indexes()?;
            manifest::compare(dir, &known, &scanned)?;
            (known, written)
        }
        None => {
            notes = manifest::missing_in_train(dir, &shards, &scanned, how.on_bad)?;
            let made = manifest::make(dir, &shards, &scanned, manifest::class_names(how.names)?, how.cure)?;
            let written = write_indexes()?;
            made.write(dir)?;
            (made, written)
        }
    };
    Ok(IndexSummary {
        dir: dir.to_path_buf(),
        shards: shards.len() as u64,
        written,
        records: scanned.iter().map(|s| s.entries.len() as u64).sum(),
        manifest,
        made_manifest,
        notes,
        scanning: scanning.into_inner().unwrap_or_else(PoisonError::into_inner),
        elapsed: started.elapsed(),
    })
}

/// Reads every shard. With `makes_manifest`, also decodes and measures the images of one split. Adds the time of all
/// threads to `spent`.
fn scan_all(
    dir: &Path,
    shards: &[ShardFile],
    makes_manifest: bool,
    how: &IndexOptions<'_>,
    spent: &Mutex<Duration>,
) -> Result<Vec<ScannedShard>, Error> {
    let measured = if makes_manifest { measured_split(shards) } else { None };
    let cure = makes_manifest.then_some(how.cure);
    let progress = Progress::new("indexing", None, how.progress);
    pool::run(shards.len(), how.jobs, |i| {
        let started = Instant::now();
        let pixels = measured == Some(shards[i].split.as_str());
        let scanned = walk::scan(&dir.join(&shards[i].file), cure, pixels, &mut progress.counter());
        *pool::lock(spent) += started.elapsed();
        scanned
    })
}

/// Writes the indexes that are missing or wrong and returns their number. Does not write to a folder with correct
/// indexes, which may be read-only.
fn write_indexes(dir: &Path, shards: &[ShardFile], scanned: &[ScannedShard]) -> Result<u64, Error> {
    let mut written = 0;
    for (shard, scanned) in shards.iter().zip(scanned) {
        let path = dir.join(&shard.file);
        if !shard::index_matches(&path, &scanned.entries) {
            shard::write_index(&path, &scanned.entries)?;
            written += 1;
        }
    }
    Ok(written)
}

/// Returns the split on which the mean and standard deviation are measured: `train`, or the first split.
fn measured_split(shards: &[ShardFile]) -> Option<&str> {
    let train = shards.iter().find(|s| s.split == "train");
    train.or(shards.first()).map(|s| s.split.as_str())
}

impl IndexSummary {
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "dir": self.dir.display().to_string(),
            "shards": self.shards,
            "written": self.written,
            "records": self.records,
            "made_manifest": self.made_manifest,
            "classes": self.manifest.classes.len(),
            "label_offset": self.manifest.label_offset,
            "splits": splits_json(&self.manifest),
            "notes": self.notes,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for IndexSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} in {} indexed in {:.2} s",
            text::path(&self.dir),
            text::plural(self.records, "record"),
            text::plural(self.shards, "shard"),
            self.elapsed.as_secs_f64()
        )?;
        match self.written {
            0 => write!(f, "; all indexes were correct")?,
            written if written < self.shards => {
                write!(f, "; {} written, the rest were correct", text::indexes(written))?
            }
            _ => {}
        }
        if self.made_manifest {
            write!(
                f,
                "; wrote dataset.json: {}, labels start at {}",
                text::labels(&self.manifest),
                self.manifest.label_offset
            )?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  {}", base::text::printable(note)))
    }
}
