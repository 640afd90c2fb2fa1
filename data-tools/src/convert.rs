//! Conversion: a source's samples, shuffled once, dealt into shards, with indexes and
//! `dataset.json`.
//!
//! The bytes depend on the source, the number of shards and the seed, never on the number of
//! threads. They grow in a folder beside OUT that is renamed at the end, so OUT is whole or not
//! there.

use crate::error::Error;
use crate::moments::{self, Moments};
use crate::pixels::Pixels;
use crate::progress::Progress;
use crate::shard_writer::{self, ShardWriter};
use crate::source::{Sample, Source};
use crate::staging::Staging;
use crate::{kinds, pool, text};
use loaders::order::Permutation;
use loaders::record::OVERHEAD;
use loaders::{Manifest, ShardManifest, SplitManifest};
use serde_json::json;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most shards that the five digits of a shard's name can count.
const MAX_SHARDS: usize = 99_999;
/// Bytes of a line of the index, roughly: two numbers.
const INDEX_LINE: u64 = 16;
/// The split that the mean and deviation of `dataset.json` describe.
const TRAIN: &str = "train";

/// How to convert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertOptions {
    /// Shards of the split `train` (every other split gets a quarter of it, at least one). Never
    /// more than samples.
    pub shards: usize,
    /// Threads; 0 means one for each core. Does not change a byte.
    pub jobs: usize,
    /// Key of the shuffle that mixes the classes over the shards.
    pub seed: u64,
    /// Show a progress bar where standard error is a terminal.
    pub progress: bool,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions { shards: 16, jobs: 0, seed: 0, progress: true }
    }
}

/// What a conversion has made.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The data set's folder.
    pub out: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of shards asked for, where there are fewer samples than that.
    pub fewer_shards_than: Option<usize>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Converts the source `src` of a kind in [`crate::KINDS`] into a data set at `out`, which must be
/// empty or not exist.
///
/// # Errors
/// Unknown kind, no shards, `out` taken or not writable, a source that is incomplete or damaged, a
/// full disk. Whatever happens, `out` stays as it was and nothing is left beside it.
pub fn convert(kind: &str, src: &Path, out: &Path, options: &ConvertOptions) -> Result<Converted, Error> {
    let started = Instant::now();
    check(options)?;
    let staging = Staging::new(out)?;
    let source = kinds::open(kind, src)?;
    write(&*source, out, staging, options, started)
}

/// Like [`convert()`], for any [`Source`].
///
/// # Errors
/// As [`convert()`], and what the source reports.
pub fn convert_source(source: &dyn Source, out: &Path, options: &ConvertOptions) -> Result<Converted, Error> {
    let started = Instant::now();
    check(options)?;
    write(source, out, Staging::new(out)?, options, started)
}

fn check(options: &ConvertOptions) -> Result<(), Error> {
    if (1..=MAX_SHARDS).contains(&options.shards) {
        return Ok(());
    }
    Err(Error::Usage(format!("{} shards asked for; expected 1 to {MAX_SHARDS}", options.shards)))
}

/// One shard to be written.
struct Task {
    split: usize,
    name: String,
    /// Positions in the shuffled order of the split.
    positions: Range<u64>,
}

fn write(
    source: &dyn Source,
    out: &Path,
    staging: Staging,
    options: &ConvertOptions,
    started: Instant,
) -> Result<Converted, Error> {
    let tasks = plan(source, options.shards)?;
    let samples = source.splits().iter().map(|s| s.len).sum();
    let needed = needed_bytes(source)?;
    let progress = Progress::new("converting", Some(samples), options.progress);
    let shards = pool::run(tasks.len(), options.jobs, |i| {
        let path = staging.dir().join(&tasks[i].name);
        write_shard(source, &tasks[i], &path, needed, options.seed, &progress)
    })?;
    drop(progress);
    let manifest = assemble(source, &tasks, shards)?;
    manifest.write(staging.dir()).map_err(|e| shard_writer::explain_full(e, needed))?;
    staging.publish()?;
    let train = source.splits().iter().find(|s| s.name == TRAIN);
    Ok(Converted {
        out: out.to_path_buf(),
        bytes: total_bytes(&manifest),
        manifest,
        fewer_shards_than: train.filter(|s| s.len < options.shards as u64).map(|_| options.shards),
        elapsed: started.elapsed(),
    })
}

/// All shards of all splits.
fn plan(source: &dyn Source, shards: usize) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (split, info) in source.splits().iter().enumerate() {
        if info.len == 0 {
            return Err(Error::input(Path::new(&info.name), "this split has no samples"));
        }
        let asked = if info.name == TRAIN { shards } else { (shards / 4).max(1) };
        let count = (asked as u64).min(info.len);
        let bound = |i: u64| (u128::from(i) * u128::from(info.len) / u128::from(count)) as u64;
        for shard in 0..count {
            tasks.push(Task {
                split,
                name: format!("{}-{shard:05}-of-{count:05}.tfrecord", info.name),
                positions: bound(shard)..bound(shard + 1),
            });
        }
    }
    Ok(tasks)
}

/// Bytes of the output, estimated from the first sample of each split (exact but for the labels'
/// names in RAW sources).
fn needed_bytes(source: &dyn Source) -> Result<u64, Error> {
    let (mut sample, mut record) = (Sample::new(), Vec::new());
    let mut needed = 0u64;
    for (split, info) in source.splits().iter().enumerate() {
        source.sample(split, 0, &mut sample)?;
        shard_writer::encode(&sample, class_name(source, &sample)?, &mut record);
        let each = record.len() as u64 + OVERHEAD + INDEX_LINE;
        needed = needed.saturating_add(each.saturating_mul(info.len));
    }
    Ok(needed)
}

fn class_name<'a>(source: &'a dyn Source, sample: &Sample) -> Result<&'a str, Error> {
    let names = source.classes();
    names.get(sample.label as usize).map(String::as_str).ok_or_else(|| {
        Error::input(
            Path::new(&sample.filename),
            format!("label {} is out of range; there are {}", sample.label, text::classes(names.len())),
        )
    })
}

fn write_shard(
    source: &dyn Source,
    task: &Task,
    path: &Path,
    needed: u64,
    seed: u64,
    progress: &Progress,
) -> Result<(ShardManifest, Moments), Error> {
    let info = &source.splits()[task.split];
    let order = Permutation::new(seed, 0, info.len);
    let mut counter = progress.counter();
    let mut writer = ShardWriter::create(path, needed)?;
    let (mut sample, mut moments) = (Sample::new(), Moments::default());
    let mut pixels = Pixels::default();
    for position in task.positions.clone() {
        source.sample(task.split, order.get(position), &mut sample)?;
        let class = class_name(source, &sample)?;
        if info.name == TRAIN {
            pixels
                .measure(&sample.example(class), &mut moments)
                .map_err(|what| Error::input(Path::new(&sample.filename), what))?;
        }
        writer.push(&sample, class)?;
        counter.tick();
    }
    Ok((writer.finish()?, moments))
}

fn assemble(source: &dyn Source, tasks: &[Task], shards: Vec<(ShardManifest, Moments)>) -> Result<Manifest, Error> {
    let mut total = Moments::default();
    let mut splits: Vec<SplitManifest> =
        source.splits().iter().map(|_| SplitManifest { count: 0, shards: Vec::new() }).collect();
    for (task, (shard, part)) in tasks.iter().zip(shards) {
        moments::merge(&mut total, &part, Path::new(&shard.file))?;
        splits[task.split].count += shard.count;
        splits[task.split].shards.push(shard);
    }
    let (mean, std) = total.finish();
    let names = source.splits().iter().map(|s| s.name.clone());
    Ok(Manifest {
        version: 1,
        classes: source.classes().to_vec(),
        label_offset: 0,
        mean,
        std,
        splits: names.zip(splits).collect(),
    })
}

fn total_bytes(manifest: &Manifest) -> u64 {
    let shards = manifest.splits.values().flat_map(|s| &s.shards);
    shards.map(|s| s.bytes).sum()
}

impl Converted {
    /// The same for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let splits: serde_json::Map<String, serde_json::Value> = self
            .manifest
            .splits
            .iter()
            .map(|(name, s)| (name.clone(), json!({"count": s.count, "shards": s.shards.len()})))
            .collect();
        json!({
            "out": self.out.display().to_string(),
            "classes": self.manifest.classes.len(),
            "splits": splits,
            "bytes": self.bytes,
            "mean": self.manifest.mean,
            "std": self.manifest.std,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

/// One line, such as `data/mnist: train 60,000 in 16 shards, test 10,000 in 4 shards; 10 classes;
/// 68.9 MiB in 0.14 s`.
impl fmt::Display for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut splits: Vec<_> = self.manifest.splits.iter().collect();
        splits.sort_by_key(|(name, s)| (name.as_str() != TRAIN, std::cmp::Reverse(s.count)));
        let splits: Vec<String> = splits
            .iter()
            .map(|(name, s)| {
                let shards = text::plural(s.shards.len() as u64, "shard");
                format!("{name} {} in {shards}", text::count(s.count))
            })
            .collect();
        write!(
            f,
            "{}: {}; {}; {} in {:.2} s",
            self.out.display(),
            splits.join(", "),
            text::classes(self.manifest.classes.len()),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )?;
        match self.fewer_shards_than {
            Some(asked) => write!(f, " ({asked} shards asked for: one sample in each)"),
            None => Ok(()),
        }
    }
}
