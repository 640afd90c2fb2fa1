//! Writes a new data set from picked records of existing ones. The output does not depend on the number of threads.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::example::{self, ExampleFault, LabelList};
use loaders::record::append_record;
use loaders::{Dataset, Format, LabelKind, Manifest, Permutation, ShardManifest, Split, SplitManifest};
use serde_json::json;

use crate::convert::order::{Task, split_tasks};
use crate::convert::shard_writer::ShardWriter;
use crate::convert::staging::Staging;
use crate::convert::summary::{self, SampleStats};
use crate::convert::survey;
use crate::error::Error;
use crate::image::band_stats::{Floats, Histograms};
use crate::image::pixels::{self, PixelDecoder};
use crate::pool;
use crate::progress::{Counter, Progress};
use crate::raw::values::Values;
use crate::splits::TRAIN;

/// An existing data set that records are copied from.
pub(super) struct SourceDataset {
    pub manifest: Manifest,
    /// The splits in the order of `dataset.json`.
    pub splits: Vec<Split>,
    /// For each of its classes, the label to store in the new data set.
    pub labels: Vec<i64>,
}

impl SourceDataset {
    /// Opens the data set in `dir`. Sets `labels` so that records keep their stored labels.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let dataset = Dataset::open(dir)?;
        let splits = dataset.manifest.splits.keys().map(|name| dataset.split(name)).collect::<Result<_, _>>()?;
        let offset = dataset.manifest.label_offset;
        let labels = (0..dataset.manifest.classes.len()).map(|class| class as i64 + offset).collect();
        Ok(SourceDataset { manifest: dataset.manifest, splits, labels })
    }

    pub(super) fn find(&self, dir: &Path, name: &str) -> Result<usize, Error> {
        self.manifest.split(dir, name)?;
        Ok(self.splits.iter().take_while(|split| split.name() != name).count())
    }

    /// Returns the class of each sample in a split. If images have sets of classes or targets instead, returns 0 for
    /// each. Reads only the beginning of each record, on `jobs` threads (0 means one per core). So checksums are not
    /// verified until the records are copied.
    pub(super) fn classes_of(&self, split: usize, jobs: usize) -> Result<Vec<u32>, Error> {
        let split = &self.splits[split];
        if split.label_kind() != LabelKind::OneClass {
            return Ok(vec![0; split.len() as usize]);
        }
        Ok(split.labels(false, pool::threads(jobs))?.into_iter().flatten().collect())
    }
}

/// A record of an existing data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pick {
    pub set: u32,
    pub split: u32,
    pub id: u64,
}

pub(super) struct Target {
    pub name: String,
    pub picks: Vec<Pick>,
}

impl Target {
    /// Picks the samples of split `split` of set `set` for which `keep` returns true, in their order.
    pub(super) fn from_split(name: &str, set: usize, split: usize, len: u64, keep: impl Fn(u64) -> bool) -> Self {
        let pick = |id| Pick { set: set as u32, split: split as u32, id };
        Target { name: name.to_string(), picks: (0..len).filter(|&id| keep(id)).map(pick).collect() }
    }

    pub(super) fn shuffle(&mut self, seed: u64) {
        let order = Permutation::new(seed, 0, self.picks.len() as u64);
        self.picks = (0..self.picks.len() as u64).map(|at| self.picks[order.get(at) as usize]).collect();
    }
}

/// The content of a new data set.
pub(super) struct ReshapePlan {
    pub sets: Vec<SourceDataset>,
    pub targets: Vec<Target>,
    pub classes: Vec<String>,
    pub multi_label: bool,
    /// The targets, if labels are numbers.
    pub numbers: Vec<loaders::Target>,
    pub label_offset: i64,
    /// True if the mean and standard deviation of the first set are kept.
    pub keeps_mean: bool,
}

/// A written shard with the statistics of its images.
struct WrittenShard {
    shard: ShardManifest,
    stats: ImageStats,
}

/// Writes the planned data set to `out`, which must not exist or must be an empty folder.
pub(super) fn write(plan: &ReshapePlan, out: &Path, options: &ReshapeOptions) -> Result<ReshapeSummary, Error> {
    let started = Instant::now();
    if options.shards == 0 {
        return Err(Error::Usage("0 shards requested; expected at least 1".into()));
    }
    if let Some(empty) = plan.targets.iter().find(|target| target.picks.is_empty()) {
        return Err(Error::Usage(format!("the split {} would contain no images; request more", empty.name)));
    }
    let staging = Staging::new(out)?;
    let stride = stride(plan)?;
    let lengths = plan.targets.iter().map(|target| (&target.name, target.picks.len() as u64)).enumerate();
    let tasks: Vec<Task> =
        lengths.flat_map(|(split, (name, len))| split_tasks(split, name, len, options.shards)).collect();
    let samples = plan.targets.iter().map(|target| target.picks.len() as u64).sum();
    let progress = Progress::new("copying", Some(samples), options.progress);
    let histograms = Histograms::default();
    let done = pool::run(tasks.len(), options.jobs, |i| {
        let (counter, pixels, framed, stats) =
            (progress.counter(), PixelDecoder::default(), Vec::new(), ImageStats::default());
        let writer = Writer { plan, task: &tasks[i], stride, counter, pixels, framed, stats };
        let mut written = writer.run(staging.dir())?;
        histograms.take(&mut written.stats.samples.bands, Path::new(&tasks[i].name))?;
        Ok(written)
    })?;
    drop(progress);
    let (manifest, note) = manifest(plan, &tasks, done, histograms)?;
    manifest.write(staging.dir())?;
    staging.publish()?;
    let bytes = summary::shard_bytes(&manifest);
    Ok(ReshapeSummary { out: out.to_path_buf(), manifest, note, bytes, elapsed: started.elapsed() })
}

/// Returns n if one in n samples of `train` is measured. Returns `None` if the mean of the first set is kept or there
/// is no `train`.
fn stride(plan: &ReshapePlan) -> Result<Option<u64>, Error> {
    let train = plan.targets.iter().find(|target| target.name == TRAIN && !plan.keeps_mean);
    let Some(train) = train else { return Ok(None) };
    let (mut copy, pick) = (Vec::new(), train.picks[0]);
    let (example, _) = plan.sets[pick.set as usize].splits[pick.split as usize].record(pick.id, &mut copy)?;
    // Raw images are not decoded, so all are measured.
    if example.format == Format::Raw {
        return Ok(Some(1));
    }
    // Not all records store a size, so read it from the file. The first image is always measured, and an error in its
    // header is reported then.
    let area = pixels::header(&example).map_or(0, |spec| spec.pixels() as u64);
    Ok(Some(survey::stride(train.picks.len() as u64, area)))
}

struct Writer<'a> {
    plan: &'a ReshapePlan,
    task: &'a Task,
    stride: Option<u64>,
    counter: Counter<'a>,
    pixels: PixelDecoder,
    /// The current record with its framing.
    framed: Vec<u8>,
    stats: ImageStats,
}

impl Writer<'_> {
    fn run(mut self, dir: &Path) -> Result<WrittenShard, Error> {
        let target = &self.plan.targets[self.task.split];
        let mut writer = ShardWriter::create(&dir.join(&self.task.name), needed(self.plan))?;
        let stride = self.stride.filter(|_| target.name == TRAIN);
        let mut copy = Vec::new();
        for position in self.task.positions.clone() {
            let is_measured = stride.is_some_and(|stride| position.is_multiple_of(stride));
            self.copy(target.picks[position as usize], is_measured, &mut copy)?;
            writer.append(&self.framed, &[self.framed.len() as u64])?;
            self.counter.tick();
        }
        Ok(WrittenShard { shard: writer.finish()?, stats: self.stats })
    }

    /// Frames a record with its new label. Also measures its image if `is_measured` is true.
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
        self.stats.add_size(example.height, example.width);
        let samples = &mut self.stats.samples;
        samples.entry_points += u64::from(!example.entry_points.is_empty());
        if is_measured {
            match set.manifest.bands.need_version() {
                true => samples.bands.add(Values::of(&example), example.encoded, None),
                false => self.pixels.measure(&example, &mut samples.moments).map_err(wrong)?,
            }
            samples.measured += 1;
        }
        if split.label_kind() == LabelKind::Numbers {
            let targets = split.targets_of(&example).map_err(|fault| Error::Loaders(shard.fault(number, fault)))?;
            Floats::merge_all(&mut samples.targets, targets.into_iter().map(Floats::of));
            self.frame(payload);
            return Ok(());
        }
        let classes = split.classes_of(&example).map_err(|fault| Error::Loaders(shard.fault(number, fault)))?;
        let mut labels: Vec<i64> = classes.into_iter().map(|class| set.labels[class as usize]).collect();
        let stays = match example.labels.is_list() {
            true => example.labels.iter().eq(labels.iter().copied()),
            false => labels == [example.label],
        };
        if stays {
            self.frame(payload);
            return Ok(());
        }
        labels.sort_unstable();
        let mut list = LabelList::default();
        list.set(&labels);
        let mut changed = Vec::with_capacity(payload.len() + 8);
        example::relabel(payload, &list, &mut changed).map_err(failed)?;
        self.frame(&changed);
        Ok(())
    }

    fn frame(&mut self, payload: &[u8]) {
        self.framed.clear();
        append_record(&mut self.framed, |out| out.extend_from_slice(payload));
    }
}

/// Returns the size of all sets in bytes, for the message if the disk is full.
fn needed(plan: &ReshapePlan) -> u64 {
    plan.sets.iter().map(|set| summary::shard_bytes(&set.manifest)).sum()
}

/// Statistics of images, collected while they are copied.
#[derive(Default)]
struct ImageStats {
    samples: SampleStats,
    /// Number of images with a recorded size.
    sized: u64,
}

impl ImageStats {
    fn add_size(&mut self, height: u32, width: u32) {
        if height > 0 && width > 0 {
            self.samples.add_size(height, width);
            self.sized += 1;
        }
    }

    fn merge(&mut self, other: ImageStats, shard: &Path) -> Result<(), Error> {
        self.sized += other.sized;
        self.samples.merge(other.samples, shard)
    }

    /// Sets the fields of `split` that describe its images. Sizes are only set if all records have one.
    fn describe(&self, split: &mut SplitManifest) {
        self.samples.describe(split);
        if self.sized != split.count {
            (split.size, split.sizes) = (None, None);
        }
    }
}

/// Returns the content of `dataset.json`, and a note if its statistics include pixels without data. It keeps the nodata
/// value, because `predict` replaces this value in image files.
fn manifest(
    plan: &ReshapePlan,
    tasks: &[Task],
    done: Vec<WrittenShard>,
    histograms: Histograms,
) -> Result<(Manifest, Option<String>), Error> {
    let mut splits: Vec<(SplitManifest, ImageStats)> = plan.targets.iter().map(|_| Default::default()).collect();
    for (task, WrittenShard { shard, stats }) in tasks.iter().zip(done) {
        let (split, all) = &mut splits[task.split];
        all.merge(stats, Path::new(&task.name))?;
        split.count += shard.count;
        split.shards.push(shard);
    }
    if let Some(train) = plan.targets.iter().position(|target| target.name == TRAIN) {
        histograms.put_into(&mut splits[train].1.samples.bands, Path::new(TRAIN))?;
    }
    let first = &plan.sets[0].manifest;
    let (mut mean, mut std, mut bands) = (first.mean.clone(), first.std.clone(), first.bands.clone());
    // `predict` must refuse such images whichever data set comes first
    bands.to_8bit = plan.sets.iter().find_map(|set| set.manifest.bands.to_8bit);
    let (mut named, mut note, mut numbers) = (BTreeMap::new(), None, plan.numbers.clone());
    for (Target { name, .. }, (mut split, stats)) in plan.targets.iter().zip(splits) {
        stats.describe(&mut split);
        if name == TRAIN {
            split.measured = first.splits.get(TRAIN).and_then(|split| split.measured).filter(|_| plan.keeps_mean);
            if !plan.keeps_mean {
                let no_values = |band| Error::input(Path::new(name), format!("no image has a value in band {band}"));
                (mean, std) = stats.samples.finish(&mut bands, &mut numbers).map_err(no_values)?;
                split.measured = Some(stats.samples.measured).filter(|&measured| measured < split.count);
                note = bands.nodata.map(|nodata| {
                    format!(
                        "pixels with the nodata value {nodata} were stored as the mean of their band, and the new statistics include \
                         them; convert the images again to leave them out"
                    )
                });
            }
        }
        named.insert(name.clone(), split);
    }
    let (classes, label_offset, multi_label) = (plan.classes.clone(), plan.label_offset, plan.multi_label);
    let mut made =
        Manifest { multi_label, classes, label_offset, bands, mean, std, splits: named, ..Manifest::default() };
    made.targets = numbers;
    made.version = Manifest::version_for(made.label_kind(), &made.bands);
    Ok((made, note))
}

/// Options of the commands that rewrite a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReshapeOptions {
    /// Number of shards of the split `train`. Every other split gets a quarter of it, but at least one. A split never
    /// has more shards than samples.
    pub shards: usize,
    /// Seed for shuffling and random draws.
    pub seed: u64,
    /// Number of threads. 0 means one per core. The output does not depend on it.
    pub jobs: usize,
    pub progress: bool,
}

impl Default for ReshapeOptions {
    fn default() -> Self {
        ReshapeOptions { shards: 16, seed: 0, jobs: 0, progress: true }
    }
}

/// The result of a command that writes a data set.
#[derive(Debug, Clone)]
pub struct ReshapeSummary {
    pub out: PathBuf,
    /// The content of `dataset.json`.
    pub manifest: Manifest,
    /// A message if the new statistics include pixels without data, or if merged data sets were read in different ways.
    pub note: Option<String>,
    /// Total size of the shards in bytes.
    pub bytes: u64,
    pub elapsed: Duration,
}

impl ReshapeSummary {
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "out": self.out.display().to_string(),
            "classes": self.manifest.classes.len(),
            "splits": summary::splits_json(&self.manifest),
            "bytes": self.bytes,
            "mean": self.manifest.mean,
            "std": self.manifest.std,
            "note": self.note,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for ReshapeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        summary::write_written(f, &self.out, &self.manifest.splits, &self.manifest, (self.bytes, self.elapsed))?;
        self.note.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::RgbImage;
    use image::codecs::png::PngEncoder;
    use loaders::{Example, ImageSpec, shard};
    use std::fs;
    use support::program::Folder;

    /// Returns the stride for a training split with 100,000 records that all contain `example`.
    fn stride_of(example: &Example<'_>) -> Option<u64> {
        let folder = Folder::new();
        let file = folder.path().join("train.tfrecord");
        let mut record = Vec::new();
        let bytes = append_record(&mut record, |out| example::encode(example, out));
        fs::write(&file, &record).unwrap();
        shard::write_index(&file, &[(0, bytes)]).unwrap();
        let shards = vec![ShardManifest { file: "train.tfrecord".into(), count: 1, bytes }];
        let split = SplitManifest { count: 1, shards, ..SplitManifest::default() };
        let (classes, splits) = (vec!["cat".to_string()], [(TRAIN.to_string(), split)].into());
        Manifest { version: 1, classes: classes.clone(), splits, ..Manifest::default() }.write(folder.path()).unwrap();
        let plan = ReshapePlan {
            sets: vec![SourceDataset::open(folder.path()).unwrap()],
            targets: vec![Target { name: TRAIN.to_string(), picks: vec![Pick { set: 0, split: 0, id: 0 }; 100_000] }],
            classes,
            multi_label: false,
            numbers: Vec::new(),
            label_offset: 0,
            keeps_mean: false,
        };
        stride(&plan).unwrap()
    }

    #[test]
    fn raw_images_are_all_measured_and_others_by_the_size_of_their_file() {
        assert_eq!(stride_of(&Example::from_raw(&[7; 784], ImageSpec::new(28, 28, 1))), Some(1));
        let mut png = Vec::new();
        RgbImage::new(512, 512).write_with_encoder(PngEncoder::new(&mut png)).unwrap();
        let unsized_record = Example::from_file(&png, Format::Png);
        // At least 256 images are measured, and 512 x 512 pixels allow no more.
        assert_eq!(stride_of(&unsized_record), Some(391));
        assert_eq!(stride_of(&Example { height: 512, width: 512, ..unsized_record }), Some(391));
    }
}
