//! Writes a new data set of records that are picked from others; the bytes do not depend on the number of threads.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::example::{self, ExampleFault, LabelList};
use loaders::record::RecordWriter;
use loaders::{Dataset, Manifest, Permutation, ShardManifest, Split, SplitManifest};
use serde_json::json;

use crate::convert::shard_writer::ShardWriter;
use crate::convert::staging::Staging;
use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::progress::{Counter, Progress};
use crate::{pool, text};

/// The split that mean and deviation describe.
const TRAIN: &str = "train";
/// Pixels that mean and deviation are measured on, but at least so many images: as a conversion has it.
const MEASURED_PIXELS: u64 = 1 << 25;
const MEASURED_IMAGES: u64 = 256;

/// A data set that records are taken from.
pub(super) struct Set {
    pub manifest: Manifest,
    /// Its splits, in the order of `dataset.json`.
    pub splits: Vec<Split>,
    /// The stored label of each of its classes in the new data set.
    pub labels: Vec<i64>,
}

impl Set {
    /// The data set in `dir`, whose labels stay.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let dataset = Dataset::open(dir)?;
        let splits = dataset.manifest.splits.keys().map(|name| dataset.split(name)).collect::<Result<_, _>>()?;
        let offset = dataset.manifest.label_offset;
        let labels = (0..dataset.manifest.classes.len()).map(|class| class as i64 + offset).collect();
        Ok(Set { manifest: dataset.manifest, splits, labels })
    }

    /// The number of the split of this name.
    pub(super) fn find(&self, dir: &Path, name: &str) -> Result<usize, Error> {
        let found = self.splits.iter().position(|split| split.name() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self.splits.iter().map(|split| format!("`{}`", split.name())).collect();
            let (dir, name, known) = (dir.to_path_buf(), name.to_string(), known.join(", "));
            Error::Loaders(loaders::Error::UnknownSplit { dir, name, known })
        })
    }

    /// The class of each sample of a split; where images may have several, all count as one class.
    pub(super) fn classes_of(&self, split: usize) -> Result<Vec<u32>, Error> {
        let (split, mut copy) = (&self.splits[split], Vec::new());
        if split.multi_label() {
            return Ok(vec![0; split.len() as usize]);
        }
        (0..split.len()).map(|id| Ok(split.record(id, &mut copy)?.1)).collect()
    }
}

/// A record of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pick {
    pub set: u32,
    pub split: u32,
    pub id: u64,
}

/// A split of the new data set.
pub(super) struct Target {
    pub name: String,
    pub picks: Vec<Pick>,
}

impl Target {
    /// All samples of split `split` of set `set` whose numbers `keep` keeps, in their order.
    pub(super) fn of(name: &str, set: usize, split: usize, len: u64, keep: impl Fn(u64) -> bool) -> Self {
        let pick = |id| Pick { set: set as u32, split: split as u32, id };
        Target { name: name.to_string(), picks: (0..len).filter(|&id| keep(id)).map(pick).collect() }
    }

    /// Shuffles the picks.
    pub(super) fn shuffle(&mut self, seed: u64) {
        let order = Permutation::new(seed, 0, self.picks.len() as u64);
        self.picks = (0..self.picks.len() as u64).map(|at| self.picks[order.get(at) as usize]).collect();
    }
}

/// What a new data set is to hold.
pub(super) struct Plan {
    pub sets: Vec<Set>,
    pub targets: Vec<Target>,
    pub classes: Vec<String>,
    pub multi_label: bool,
    pub label_offset: i64,
    /// Whether mean and deviation of the first set stay.
    pub keeps_mean: bool,
}

/// A shard to write.
struct Task {
    target: usize,
    name: String,
    picks: Range<usize>,
}

/// A shard that was written.
struct Done {
    shard: ShardManifest,
    learnt: Learnt,
}

/// Writes the data set of a plan to `out`, which must be empty or not exist.
pub(super) fn write(plan: &Plan, out: &Path, options: &Reshaping) -> Result<Reshaped, Error> {
    let started = Instant::now();
    if options.shards == 0 {
        return Err(Error::Usage("0 shards requested; expected at least 1".into()));
    }
    if let Some(empty) = plan.targets.iter().find(|target| target.picks.is_empty()) {
        return Err(Error::Usage(format!("the split {} would hold no image; take more", empty.name)));
    }
    let staging = Staging::new(out)?;
    let stride = stride(plan)?;
    let tasks = tasks(plan, options.shards);
    let samples = plan.targets.iter().map(|target| target.picks.len() as u64).sum();
    let progress = Progress::new("copying", Some(samples), options.progress);
    let done = pool::run(tasks.len(), options.jobs, |i| {
        let (counter, pixels, framed, learnt) = (progress.counter(), Pixels::default(), Vec::new(), Learnt::default());
        Writer { plan, task: &tasks[i], stride, counter, pixels, framed, learnt }.run(staging.dir())
    })?;
    drop(progress);
    let manifest = manifest(plan, &tasks, done)?;
    manifest.write(staging.dir())?;
    staging.publish()?;
    let bytes = manifest.splits.values().flat_map(|split| &split.shards).map(|shard| shard.bytes).sum();
    Ok(Reshaped { out: out.to_path_buf(), manifest, bytes, elapsed: started.elapsed() })
}

fn tasks(plan: &Plan, shards: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (target, Target { name, picks }) in plan.targets.iter().enumerate() {
        let requested = if name == TRAIN { shards } else { (shards / 4).max(1) };
        let (count, len) = (requested.min(picks.len()), picks.len() as u128);
        let bound = |i: usize| (i as u128 * len / count as u128) as usize;
        tasks.extend((0..count).map(|shard| Task {
            target,
            name: format!("{name}-{shard:05}-of-{count:05}.tfrecord"),
            picks: bound(shard)..bound(shard + 1),
        }));
    }
    tasks
}

/// Every how many samples of `train` one is measured; `None` if the mean of the first set stays.
fn stride(plan: &Plan) -> Result<Option<u64>, Error> {
    let train = plan.targets.iter().find(|target| target.name == TRAIN && !plan.keeps_mean);
    let Some(train) = train else { return Ok(None) };
    let (mut copy, pick) = (Vec::new(), train.picks[0]);
    let (example, _) = plan.sets[pick.set as usize].splits[pick.split as usize].record(pick.id, &mut copy)?;
    let images = MEASURED_PIXELS / (u64::from(example.height) * u64::from(example.width)).max(1);
    Ok(Some((train.picks.len() as u64).div_ceil(images.max(MEASURED_IMAGES)).max(1)))
}

/// Writes one shard.
struct Writer<'a> {
    plan: &'a Plan,
    task: &'a Task,
    stride: Option<u64>,
    counter: Counter<'a>,
    pixels: Pixels,
    /// The record at work, framed.
    framed: Vec<u8>,
    learnt: Learnt,
}

impl Writer<'_> {
    fn run(mut self, dir: &Path) -> Result<Done, Error> {
        let target = &self.plan.targets[self.task.target];
        let mut writer = ShardWriter::create(&dir.join(&self.task.name), needed(self.plan))?;
        let stride = self.stride.filter(|_| target.name == TRAIN);
        let mut copy = Vec::new();
        for position in self.task.picks.clone() {
            let is_measured = stride.is_some_and(|stride| (position as u64).is_multiple_of(stride));
            self.copy(target.picks[position], is_measured, &mut copy)?;
            writer.append(&self.framed, &[self.framed.len() as u64])?;
            self.counter.tick();
        }
        Ok(Done { shard: writer.finish()?, learnt: self.learnt })
    }

    /// Frames a record with its new label, and measures its image if it `is_measured`.
    fn copy(&mut self, pick: Pick, is_measured: bool, copy: &mut Vec<u8>) -> Result<(), Error> {
        let set = &self.plan.sets[pick.set as usize];
        let split = &set.splits[pick.split as usize];
        let (shard, number) = split.locate(pick.id)?;
        let shard = split.shard(shard)?;
        let payload = shard.record(number, copy)?;
        let failed = |fault: ExampleFault| Error::Loaders(shard.fault(number, fault.into()));
        let wrong = |what: String| {
            let (path, offset) = (shard.path().to_path_buf(), shard.offset(number).unwrap_or(0));
            Error::Record { shard: path, record: number, offset, what }
        };
        let example = example::parse(payload).map_err(failed)?;
        self.learnt.see(example.height, example.width);
        self.learnt.entry_points += u64::from(!example.entry_points.is_empty());
        if is_measured {
            self.pixels.measure(&example, &mut self.learnt.moments).map_err(wrong)?;
            self.learnt.measured += 1;
        }
        let classes = split.classes_of(&example).map_err(|fault| Error::Loaders(shard.fault(number, fault)))?;
        let mut labels: Vec<i64> = classes.into_iter().map(|class| set.labels[class as usize]).collect();
        let stays = match example.labels.is_list() {
            true => example.labels.iter().eq(labels.iter().copied()),
            false => labels == [example.label],
        };
        if stays {
            return self.frame(payload);
        }
        labels.sort_unstable();
        let mut list = LabelList::default();
        list.set(&labels);
        let mut changed = Vec::with_capacity(payload.len() + 8);
        example::relabel(payload, &list, &mut changed).map_err(failed)?;
        self.frame(&changed)
    }

    fn frame(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.framed.clear();
        let written = RecordWriter::new(&mut self.framed).write(payload);
        written.map(drop).map_err(|e| Error::io("write", Path::new(&self.task.name), e))
    }
}

/// Bytes of all sets, for the message of a full disk.
fn needed(plan: &Plan) -> u64 {
    let splits = plan.sets.iter().flat_map(|set| set.manifest.splits.values());
    splits.flat_map(|split| &split.shards).map(|shard| shard.bytes).sum()
}

/// What is learnt of images while they are copied.
#[derive(Default)]
struct Learnt {
    moments: Moments,
    measured: u64,
    /// Images whose records tell their sizes, and the least and greatest of these.
    sized: u64,
    sizes: [[u32; 2]; 2],
    /// Images that have entry points.
    entry_points: u64,
}

impl Learnt {
    fn see(&mut self, height: u32, width: u32) {
        if height > 0 && width > 0 {
            self.widen(1, [[height, width]; 2]);
        }
    }

    fn widen(&mut self, sized: u64, other: [[u32; 2]; 2]) {
        if sized == 0 {
            return;
        }
        let [least, greatest] = if self.sized == 0 { other } else { self.sizes };
        let each = |f: fn(u32, u32) -> u32, a: [u32; 2], b: [u32; 2]| [f(a[0], b[0]), f(a[1], b[1])];
        self.sizes = [each(u32::min, least, other[0]), each(u32::max, greatest, other[1])];
        self.sized += sized;
    }

    fn merge(&mut self, other: Learnt, shard: &Path) -> Result<(), Error> {
        self.moments.merge_shard(&other.moments, shard)?;
        self.measured += other.measured;
        self.entry_points += other.entry_points;
        self.widen(other.sized, other.sizes);
        Ok(())
    }

    /// Enters what is known of all images of a split.
    fn describe(&self, split: &mut SplitManifest) {
        split.entry_points = Some(self.entry_points).filter(|&count| count > 0);
        if self.sized == split.count {
            let [least, greatest] = self.sizes;
            split.size = (least == greatest).then_some(least);
            split.sizes = (least != greatest).then_some(self.sizes);
        }
    }
}

fn manifest(plan: &Plan, tasks: &[Task], done: Vec<Done>) -> Result<Manifest, Error> {
    let mut splits: Vec<(SplitManifest, Learnt)> = plan.targets.iter().map(|_| Default::default()).collect();
    for (task, Done { shard, learnt }) in tasks.iter().zip(done) {
        let (split, all) = &mut splits[task.target];
        all.merge(learnt, Path::new(&task.name))?;
        split.count += shard.count;
        split.shards.push(shard);
    }
    let first = &plan.sets[0].manifest;
    let (mut mean, mut std) = (first.mean.clone(), first.std.clone());
    let mut named = BTreeMap::new();
    for (Target { name, .. }, (mut split, learnt)) in plan.targets.iter().zip(splits) {
        learnt.describe(&mut split);
        if name == TRAIN {
            split.measured = first.splits.get(TRAIN).and_then(|split| split.measured).filter(|_| plan.keeps_mean);
            if !plan.keeps_mean {
                (mean, std) = learnt.moments.finish();
                split.measured = Some(learnt.measured).filter(|&measured| measured < split.count);
            }
        }
        named.insert(name.clone(), split);
    }
    let (classes, label_offset, multi_label) = (plan.classes.clone(), plan.label_offset, plan.multi_label);
    let version = Manifest::version_of(multi_label);
    Ok(Manifest { version, multi_label, classes, label_offset, mean, std, splits: named })
}

/// How a data set is written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshaping {
    /// Shards of the split `train` (every other split gets a quarter of it, at least one), but no more than samples.
    pub shards: usize,
    /// Key of the shuffle and of draws.
    pub seed: u64,
    /// Threads; 0 means one for each core. The output does not depend on it.
    pub jobs: usize,
    /// Show progress.
    pub progress: bool,
}

impl Default for Reshaping {
    fn default() -> Self {
        Reshaping { shards: 16, seed: 0, jobs: 0, progress: true }
    }
}

/// A data set that was made.
#[derive(Debug, Clone)]
pub struct Reshaped {
    /// Its folder.
    pub out: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
    /// Bytes of its shards.
    pub bytes: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

impl Reshaped {
    /// The result for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let splits = self.manifest.splits.iter();
        let splits: serde_json::Map<String, serde_json::Value> =
            splits.map(|(name, s)| (name.clone(), json!({"count": s.count, "shards": s.shards.len()}))).collect();
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

impl fmt::Display for Reshaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let splits = self.manifest.splits.iter().map(|(name, s)| {
            let shards = text::plural(s.shards.len() as u64, "shard");
            format!("{name} {} in {shards}", text::count(s.count))
        });
        write!(
            f,
            "{}: {}; {}; {} in {:.2} s",
            text::path(&self.out),
            splits.collect::<Vec<_>>().join(", "),
            text::classes(self.manifest.classes.len()),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )
    }
}
