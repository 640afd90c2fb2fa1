//! Finished shards, and the `dataset.json` and list of left-out samples made from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use base::text::printable;
use loaders::replace::replace;
use loaders::shard::index_path;
use loaders::{Bands, LabelKind, Limits, Manifest, ShardManifest, SplitManifest, Target};
use serde::{Deserialize, Serialize};

use super::order::Task;
use super::shard_writer::explain_full;
use super::summary::{SKIPPED, SampleStats};
use crate::error::Error;
use crate::image::band_stats::Histograms;
use crate::options::OnBad;
use crate::source::Source;
use crate::splits::TRAIN;

/// The manifest and left-out samples of a complete conversion.
pub(super) struct ConvertedDataset {
    pub manifest: Manifest,
    /// A message for each sample that was left out.
    pub skipped: Vec<String>,
    /// Messages about properties of TIFF files that the conversion ignored, such as further pages.
    pub notes: Vec<String>,
}

/// A split with the statistics of its samples.
#[derive(Default)]
struct Split {
    manifest: SplitManifest,
    tally: SampleStats,
}

impl ConvertedDataset {
    /// Combines the finished shards in the order of `tasks`.
    pub fn from_shards(
        source: &dyn Source,
        tasks: &[Task],
        (finished, histograms): FinishedShards,
        mut bands: Bands,
    ) -> Result<Self, Error> {
        let mut splits = collect(source.splits().len(), tasks, finished)?;
        if let Some(train) = source.splits().iter().position(|split| split.name == TRAIN) {
            histograms.put_into(&mut splits[train].tally.bands, Path::new(TRAIN))?;
        }
        let (mut mean, mut std) = (Vec::new(), Vec::new());
        let mut targets: Vec<Target> = source.targets().iter().map(|name| Target::new(name)).collect();
        for (info, split) in source.splits().iter().zip(&mut splits) {
            split.describe(&info.name)?;
            if info.name == TRAIN {
                let finished = split.tally.finish(&mut bands, &mut targets);
                (mean, std) = finished.map_err(|band| without_data(&info.name, band))?;
                split.manifest.measured = Some(split.tally.measured).filter(|&n| n < split.manifest.count);
            }
        }
        let mut ignored = SampleStats::default();
        for Split { tally, .. } in &splits {
            ignored.more_pages += tally.more_pages;
            ignored.unused_nodata += tally.unused_nodata;
        }
        let converted = splits.iter_mut().flat_map(|split| std::mem::take(&mut split.tally.skipped));
        let lines = source.info().skipped.iter().cloned().chain(converted);
        let skipped = lines.map(|line| printable(&line).into_owned()).collect();
        let names = source.splits().iter().map(|info| info.name.clone());
        let manifest = Manifest {
            version: Manifest::version_for(source.label_kind(), &bands),
            multi_label: source.label_kind() == LabelKind::Classes,
            classes: source.classes().to_vec(),
            targets,
            label_offset: source.label_offset(),
            bands,
            mean,
            std,
            splits: names.zip(splits.into_iter().map(|split| split.manifest)).collect(),
        };
        Ok(ConvertedDataset { manifest, skipped, notes: ignored.notes() })
    }

    /// Writes `dataset.json`, and the list of left-out samples if there are any. `needed` is the size of the output for
    /// the message if the disk is full.
    pub fn write(&self, dir: &Path, needed: u64) -> Result<(), Error> {
        let explain = |e| explain_full(e, needed);
        write_skipped(dir, &self.skipped).map_err(explain)?;
        self.manifest.create(dir).map_err(explain)
    }
}

/// Writes the list of left-out samples if there are any.
pub(super) fn write_skipped(dir: &Path, skipped: &[String]) -> Result<(), loaders::Error> {
    if skipped.is_empty() { Ok(()) } else { replace(&dir.join(SKIPPED), (skipped.join("\n") + "\n").as_bytes()) }
}

/// Returns the error for a band without data: all of its pixels have the nodata value.
pub(super) fn without_data(split: &str, band: usize) -> Error {
    let what = format!(
        "band {band} has no pixel with data in this split, only the nodata value; leave it out with --bands, or correct --nodata"
    );
    Error::input(Path::new(split), what)
}

/// Collects the shards and statistics of each of the `count` splits.
fn collect(count: usize, tasks: &[Task], mut finished: BTreeMap<String, Finished>) -> Result<Vec<Split>, Error> {
    let mut splits: Vec<Split> = (0..count).map(|_| Split::default()).collect();
    for task in tasks {
        let Some(Finished { shard, tally, .. }) = finished.remove(&task.name) else {
            return Err(Error::Panic(format!("shard {} was never written", task.name)));
        };
        let split = &mut splits[task.split];
        split.tally.merge(tally, Path::new(&task.name))?;
        split.manifest.count += shard.count;
        split.manifest.shards.push(shard);
    }
    Ok(splits)
}

impl Split {
    /// Describes the images in the manifest. Returns an error if the split has no images.
    fn describe(&mut self, name: &str) -> Result<(), Error> {
        if self.manifest.count == 0 {
            let first = self.tally.skipped.first().map_or("", String::as_str);
            let what = format!("no image of this split can be used; the first fault: {first}");
            return Err(Error::input(Path::new(name), what));
        }
        self.tally.describe(&mut self.manifest);
        Ok(())
    }
}

/// The finished shards by name, and the sum of their histograms.
pub(super) type FinishedShards = (BTreeMap<String, Finished>, Histograms);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Finished {
    pub shard: ShardManifest,
    /// Size of the shard's index file in bytes.
    pub index_bytes: u64,
    pub tally: SampleStats,
    /// The limits in effect when the shard was written: memory in bytes, pixels, scans, seconds. Files of earlier
    /// versions have zeros.
    #[serde(default)]
    pub limits: [f64; 4],
    /// The value per band that replaced nodata values. Empty without nodata values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill: Vec<f64>,
}

impl Finished {
    pub fn new(
        dir: &Path,
        shard: ShardManifest,
        tally: SampleStats,
        limits: &Limits,
        fill: &[f64],
    ) -> Result<Self, Error> {
        let index = index_path(&dir.join(&shard.file));
        let index_bytes = size(&index).map_err(|e| Error::io("read", &index, e))?;
        Ok(Finished { shard, index_bytes, tally, limits: numbers(limits), fill: fill.to_vec() })
    }

    /// Returns true if this shard can be kept with the given options. A shard with left-out images is only kept if
    /// images may be skipped and the limits are the same, because higher limits might accept these images. Returns an
    /// error if a limit is lower than when the shard was written: some of its images might exceed it.
    pub fn can_be_kept(&self, on_bad: OnBad, limits: &Limits) -> Result<bool, Error> {
        let (before, now) = (self.limits, numbers(limits));
        if now.iter().zip(before).any(|(now, before)| *now < before) {
            let [memory, _, _, seconds] = before;
            return Err(Error::Usage(format!(
                "{}: this finished shard was converted with higher limits; use at least --limit-memory {memory} --limit-seconds \
                 {seconds}, or remove the folder of the unfinished conversion to start again",
                self.shard.file
            )));
        }
        Ok(self.tally.skipped.is_empty() || on_bad == OnBad::Skip && now == before)
    }

    /// Returns true if shard and index exist in `dir` with their recorded sizes. This detects truncated copies. Only
    /// `verify` detects changed bytes.
    pub fn has_files(&self, dir: &Path) -> bool {
        let path = dir.join(&self.shard.file);
        size(&path).is_ok_and(|n| n == self.shard.bytes)
            && size(&index_path(&path)).is_ok_and(|n| n == self.index_bytes)
    }
}

fn numbers(limits: &Limits) -> [f64; 4] {
    [limits.memory as f64, limits.pixels as f64, f64::from(limits.scans), limits.seconds]
}

/// Returns the size of a regular file. Links are rejected, because a conversion does not create them.
fn size(path: &Path) -> io::Result<u64> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_file() { Ok(meta.len()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_limits_keep_shards_that_nothing_was_left_out_of() {
        let shard = ShardManifest { file: "a".into(), count: 1, bytes: 1 };
        let [low, usual] = [Limits::with_memory(1 << 20), Limits::DEFAULT];
        let finished = |limits: &Limits, skipped: &[&str]| {
            let skipped = skipped.iter().map(ToString::to_string).collect();
            let tally = SampleStats { skipped, ..SampleStats::default() };
            Finished { shard: shard.clone(), index_bytes: 0, tally, limits: numbers(limits), fill: Vec::new() }
        };
        let can_be_kept = |before: &Limits, skipped: &[&str], on_bad, now: &Limits| {
            finished(before, skipped).can_be_kept(on_bad, now).unwrap()
        };
        for on_bad in [OnBad::Fail, OnBad::Skip] {
            assert!(can_be_kept(&low, &[], on_bad, &low) && can_be_kept(&low, &[], on_bad, &usual));
            let refused = finished(&usual, &[]).can_be_kept(on_bad, &low).unwrap_err();
            assert!(refused.is_usage() && refused.to_string().contains("--limit-memory 536870912"), "{refused}");
        }
        assert!(can_be_kept(&low, &["b.png"], OnBad::Skip, &low));
        assert!(
            !can_be_kept(&low, &["b.png"], OnBad::Skip, &usual) && !can_be_kept(&low, &["b.png"], OnBad::Fail, &low)
        );
    }
}
