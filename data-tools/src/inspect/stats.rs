//! Measures a split: the mean and standard deviation of its pixels, sizes and aspect ratios, and the number of images
//! per class.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::text::shown;
use loaders::dataset::MANIFEST;
use loaders::{Bands, ImageSpec, Manifest, ShardManifest, Target, example};
use serde_json::json;

use super::manifest;
use super::shard_files::ShardIndex;
use super::verify::ShardFault;
use super::walk::{Position, ShardRecord, Walk};
use crate::error::Error;
use crate::image::band_stats::{self, BandStats, Floats, Histograms};
use crate::image::moments::{Moments, Sizes};
use crate::image::pixels::{self, PixelDecoder};
use crate::progress::{Counter, Progress};
use crate::raw::values::Values;
use crate::{pool, text};

/// Statistics of a split, measured by [`stats`].
#[derive(Debug, Clone)]
pub struct Stats {
    pub dir: PathBuf,
    pub split: String,
    /// Number of images that could be measured.
    pub count: u64,
    /// Mean per channel. Bytes count as `value / 255`, and other types in stored units.
    pub mean: Vec<f64>,
    /// Population standard deviation per channel, in the same units.
    pub std: Vec<f64>,
    /// The bands' type, count and statistics, if `dataset.json` describes them.
    pub bands: Bands,
    pub sizes: Sizes,
    /// Name of each class and number of its images, in label order.
    pub classes: Vec<(String, u64)>,
    /// Label counts of a multi-label data set.
    pub several: Option<LabelCounts>,
    /// The targets, each with its smallest and largest value in the split. Empty if the labels are classes.
    pub targets: Vec<(Target, [f32; 2])>,
    /// Number of unusable records that were left out.
    pub skipped: u64,
    /// The faults of unusable records. At most the first thousand of each shard.
    pub bad: Vec<ShardFault>,
    pub elapsed: Duration,
}

/// Label counts of a multi-label split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelCounts {
    /// Number of labels of all images together.
    pub labels: u64,
    /// Number of images without labels.
    pub without: u64,
}

/// Measures the split `split` of the data set in `dir` on `jobs` threads (0 means one per core).
///
/// Sums over integers are exact. Sums over float32 values are merged shard by shard, in order. So the result does not
/// depend on the number of threads. PNG and JPEG files are decoded
/// at full size. Memory use does not grow with the number of images. Records that are damaged, cannot be decoded or
/// have no valid label are reported and skipped.
///
/// # Errors
///
/// Returns an error if the split does not exist, a shard is missing or cannot be read, the counts differ from
/// `dataset.json`, or images have different numbers of channels. Grey images next to colour images are allowed and
/// count as colour.
pub fn stats(dir: &Path, split: &str, jobs: usize) -> Result<Stats, Error> {
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let found = manifest.split(dir, split)?;
    let progress = Progress::new("measuring", Some(found.count), true);
    let histograms = Histograms::default();
    let parts = pool::run(found.shards.len(), jobs, |i| {
        let shard = &found.shards[i];
        let mut part = Measurement::shard(dir, shard, &manifest, &mut progress.counter())?;
        histograms.take(&mut part.bands, &dir.join(&shard.file))?;
        Ok(part)
    })?;
    drop(progress);
    let mut total = Measurement::new(manifest.classes.len());
    for (shard, part) in found.shards.iter().zip(parts) {
        total.bands.merge(&part.bands, &dir.join(&shard.file))?;
        total.merge(part).map_err(|what| Error::input(&dir.join(&shard.file), format!("images of {what}")))?;
    }
    histograms.put_into(&mut total.bands, Path::new(split))?;
    let mut bands = manifest.bands.clone();
    let (mean, std) = match total.bands.is_empty() {
        true => total.moments.finish(),
        false => total
            .bands
            .finish(&mut bands)
            .map_err(|band| Error::input(dir, format!("no image has a value in band {band}")))?,
    };
    Ok(Stats {
        dir: dir.to_path_buf(),
        split: split.to_string(),
        count: total.images,
        mean,
        std,
        bands,
        sizes: total.sizes,
        several: manifest
            .multi_label
            .then(|| LabelCounts { labels: total.counts.iter().sum(), without: total.unlabelled }),
        targets: manifest
            .targets
            .iter()
            .zip(&total.targets)
            .map(|(Target { name, .. }, measured)| {
                let (mean, std) = measured.mean_and_std();
                (Target { name: name.clone(), mean, std }, measured.range())
            })
            .collect(),
        classes: manifest.classes.into_iter().zip(total.counts).collect(),
        skipped: total.skipped,
        bad: total.bad,
        elapsed: started.elapsed(),
    })
}

impl Stats {
    /// Writes the mean and standard deviation to `dataset.json`, together with the number of measured images if it is
    /// not all of them.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not `train` although the data set has a `train` split, if no image could be
    /// measured, or if the file cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        if self.count == 0 {
            let what = format!("no image of the split `{}` could be measured", self.split);
            return Err(Error::input(&self.dir, what));
        }
        let mut manifest = Manifest::read(&self.dir)?;
        if self.split != "train" && manifest.splits.contains_key("train") {
            return Err(Error::Usage(format!(
                "{} stores mean and std of the split `train`, not of `{}`; measure `train` to write them",
                self.dir.join(MANIFEST).display(),
                self.split
            )));
        }
        if let Some(nodata) = manifest.bands.nodata {
            return Err(Error::Usage(format!(
                "{}: pixels with the nodata value {nodata} were stored as the mean of their band, so statistics of the records would \
                 include them; convert the images again, which measures without them",
                self.dir.join(MANIFEST).display()
            )));
        }
        if self.targets.len() == manifest.targets.len() {
            manifest.targets = self.targets.iter().map(|(target, _)| target.clone()).collect();
        }
        manifest.bands.clone_from(&self.bands);
        manifest.mean.clone_from(&self.mean);
        manifest.std.clone_from(&self.std);
        // The new mean was measured on this split only, so the other splits have no number of measured images.
        for (name, split) in &mut manifest.splits {
            split.measured = Some(self.count).filter(|&count| *name == self.split && count < split.count);
        }
        Ok(manifest.write(&self.dir)?)
    }

    pub fn to_json(&self) -> serde_json::Value {
        let classes: Vec<_> = self.classes.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        let mut object = json!({
            "dir": self.dir.display().to_string(),
            "split": self.split,
            "count": self.count,
            "mean": self.mean,
            "std": self.std,
            "sizes": self.sizes.to_json(),
            "classes": classes,
            "skipped": self.skipped,
            "bad": self.bad,
            "seconds": self.elapsed.as_secs_f64(),
        });
        if self.bands.need_version() {
            object["bands"] = band_stats::to_json(&self.bands);
        }
        if !self.targets.is_empty() {
            let each = self.targets.iter().map(|(Target { name, mean, std }, [min, max])| {
                json!({"name": name, "mean": mean, "std": std, "min": min, "max": max})
            });
            object["targets"] = each.collect();
        }
        if let Some(LabelCounts { labels, without }) = self.several {
            object["labels"] = labels.into();
            object["without_label"] = without.into();
        }
        object
    }

    fn write_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.classes.iter().map(|(name, _)| shown(name)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let most = self.classes.iter().map(|(_, n)| *n).max().unwrap_or(0);
        for (i, (name, (_, count))) in names.iter().zip(&self.classes).enumerate() {
            write!(f, "\n  {i:>4} {name:width$} {:>11}  {}", text::count(*count), text::bar(*count, most))?;
        }
        Ok(())
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {}: {} in {:.2} s",
            text::path(&self.dir),
            self.split,
            text::plural(self.count, "image"),
            self.elapsed.as_secs_f64()
        )?;
        match self.bands.need_version() {
            true => band_stats::write(f, &self.bands, &self.mean, &self.std)?,
            false => {
                writeln!(f, "  mean {}  (of pixel/255)", text::decimals(&self.mean))?;
                writeln!(f, "  std  {}", text::decimals(&self.std))?;
            }
        }
        write!(f, "{}", self.sizes)?;
        if let Some(LabelCounts { labels, without }) = self.several {
            let each = labels as f64 / self.count.max(1) as f64;
            write!(f, "\n  {} ({each:.2} an image), ", text::plural(labels, "label"))?;
            write!(f, "{} without one", text::plural(without, "image"))?;
        }
        for (Target { name, mean, std }, [min, max]) in &self.targets {
            write!(f, "\n  {}: mean {mean:.6}, std {std:.6}, from {min} to {max}", shown(name))?;
        }
        self.write_classes(f)?;
        if self.skipped > 0 {
            write!(f, "\n  {} left out:", text::plural(self.skipped, "bad record"))?;
        }
        for bad in &self.bad {
            write!(f, "\n    {bad}")?;
        }
        Ok(())
    }
}

/// How many faults of a shard are kept. Further ones are only counted, so that memory stays small.
const MAX_LISTED: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Measurement {
    pub images: u64,
    /// Pixel sums of images of bytes.
    moments: Moments,
    /// Statistics of raw images.
    bands: BandStats,
    /// Number of images per class.
    pub counts: Vec<u64>,
    /// Number of images without a class.
    pub unlabelled: u64,
    /// Statistics per target.
    targets: Vec<Floats>,
    pub sizes: Sizes,
    /// Number of unusable records.
    pub skipped: u64,
    pub bad: Vec<ShardFault>,
}

impl Measurement {
    pub fn new(classes: usize) -> Self {
        Self { counts: vec![0; classes], ..Self::default() }
    }

    /// Measures a shard of the data set in `dir`. Returns an error if the shard cannot be read or has a different
    /// number of records than in `dataset.json`. Faults of single records are only collected.
    pub fn shard(
        dir: &Path,
        shard: &ShardManifest,
        manifest: &Manifest,
        counter: &mut Counter<'_>,
    ) -> Result<Self, Error> {
        let path = dir.join(&shard.file);
        let mut walk = Walk::open(&path)?;
        let mut measured = Self::new(manifest.classes.len());
        let mut pixels = PixelDecoder::default();
        let mut records = 0;
        while let Some(found) = walk.step()? {
            let (at, bad_length) = (found.at, found.bad_length);
            records = at.record + 1;
            let mut fault = measured.record(&found, manifest, &mut pixels).err();
            counter.tick();
            if bad_length {
                records = measured.resume(&path, &mut walk, at, shard.count, &mut fault)?;
            }
            if let Some(what) = fault {
                measured.note(ShardFault::record(&shard.file, at, what));
            }
        }
        if records == shard.count {
            return Ok(measured);
        }
        let (found, expected) = (text::plural(records, "record"), shard.count);
        Err(Error::input(
            &path,
            format!("the shard has {found}, but dataset.json lists {expected}; run `trireme data verify`"),
        ))
    }

    /// Continues after the record `at`, whose length cannot be trusted. The index gives the next record, and records in
    /// between count as skipped. Without a usable index, all following records count as skipped, and `fault` mentions
    /// them. Returns the number of records handled so far.
    fn resume(
        &mut self,
        path: &Path,
        walk: &mut Walk,
        at: Position,
        count: u64,
        fault: &mut Option<String>,
    ) -> Result<u64, Error> {
        let records = at.record + 1;
        let next = ShardIndex::read(path).ok().and_then(|index| index.next(at.offset, walk.length));
        if let Some(next) = next {
            walk.resume(next)?;
            self.skipped += next.record.saturating_sub(records);
            return Ok(records);
        }
        if count <= records {
            return Ok(records);
        }
        let behind = text::plural(count - records, "record");
        *fault = fault.take().map(|what| format!("{what}; therefore the {behind} after it could not be found"));
        self.skipped += count - records;
        Ok(count)
    }

    fn note(&mut self, bad: ShardFault) {
        self.skipped += 1;
        if self.bad.len() < MAX_LISTED {
            self.bad.push(bad);
        }
    }

    fn record(
        &mut self,
        found: &ShardRecord<'_>,
        manifest: &Manifest,
        pixels: &mut PixelDecoder,
    ) -> Result<(), String> {
        let payload = found.payload.map_err(|e| e.to_string())?;
        let example = example::parse(payload).map_err(|e| e.to_string())?;
        let classes = manifest::classes(&example, manifest)?;
        let targets = manifest::targets(&example, manifest)?;
        manifest::check_bands(&example, manifest)?;
        if !manifest.bands.need_version() {
            let (image, spec) = pixels.decode(&example)?;
            self.add(image, spec)?;
        } else {
            let spec = pixels::header(&example)?;
            self.bands.add(Values::of(&example), example.encoded, None);
            self.sizes.add(spec);
            self.images += 1;
        }
        Floats::merge_all(&mut self.targets, targets.into_iter().map(Floats::of));
        self.unlabelled += u64::from(classes.is_empty());
        classes.into_iter().for_each(|class| self.counts[class] += 1);
        Ok(())
    }

    fn add(&mut self, image: &[u8], spec: ImageSpec) -> Result<(), String> {
        self.moments.add(image, spec.channels as usize)?;
        self.sizes.add(spec);
        self.images += 1;
        Ok(())
    }

    /// Adds the statistics of another shard. Returns a message if its images have a different number of channels.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        self.moments.merge(&other.moments)?;
        self.sizes.merge(&other.sizes);
        Floats::merge_all(&mut self.targets, other.targets);
        self.images += other.images;
        self.unlabelled += other.unlabelled;
        self.skipped += other.skipped;
        self.bad.extend(other.bad);
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        Ok(())
    }
}
