//! Measures one split: mean and deviation of its pixels, sizes and aspect ratios, images of each class.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::dataset::MANIFEST;
use loaders::{ImageSpec, Manifest, ShardManifest, SplitManifest, example, shown};
use serde_json::json;

use super::manifest;
use super::shard_files::ShardIndex;
use super::verify::Bad;
use super::walk::{Found, Position, Walk};
use crate::error::Error;
use crate::image::moments::{Moments, Sizes};
use crate::image::pixels::Pixels;
use crate::progress::{Counter, Progress};
use crate::{pool, progress, text};

/// Measures of a split.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The data set's folder.
    pub dir: PathBuf,
    /// The split.
    pub split: String,
    /// Images measured.
    pub count: u64,
    /// Mean of pixel/255 per channel.
    pub mean: Vec<f64>,
    /// Population standard deviation of pixel/255 per channel.
    pub std: Vec<f64>,
    /// Heights, widths, aspect ratios.
    pub sizes: Sizes,
    /// Name and number of images of each class, in the order of the labels.
    pub classes: Vec<(String, u64)>,
    /// Labels that the images have together, and images without one, where images may have several.
    pub several: Option<SeveralLabels>,
    /// Records left out because they are bad.
    pub skipped: u64,
    /// What is wrong with them: the first thousand of each shard.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Labels of a split whose images may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeveralLabels {
    /// Of all images together.
    pub labels: u64,
    /// Images without one.
    pub without: u64,
}

/// Measures the split named `split` of the data set in `dir` on `jobs` threads (0: one for each
/// core).
///
/// The sums are exact integers, so the result is the same for any number of threads. PNG and JPEG are decoded whole; memory
/// does not grow with the number of images. A record that is damaged, cannot be decoded or has no valid label is named and
/// skipped.
///
/// # Errors
/// No such split; a shard that is missing or cannot be read; counts other than in `dataset.json`; images of different numbers
/// of channels (grey ones among coloured ones count as coloured).
pub fn stats(dir: &Path, split: &str, jobs: usize) -> Result<Stats, Error> {
    let _watch = progress::watch()?;
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let found = find(dir, &manifest, split)?;
    let progress = Progress::new("measuring", Some(found.count), true);
    let parts = pool::run(found.shards.len(), jobs, |i| {
        Measured::shard(dir, &found.shards[i], &manifest, &mut progress.counter())
    })?;
    drop(progress);
    let mut total = Measured::new(manifest.classes.len());
    for (shard, part) in found.shards.iter().zip(parts) {
        total.merge(part).map_err(|what| Error::input(&dir.join(&shard.file), format!("images of {what}")))?;
    }
    let (mean, std) = total.finish();
    Ok(Stats {
        dir: dir.to_path_buf(),
        split: split.to_string(),
        count: total.images,
        mean,
        std,
        sizes: total.sizes,
        several: manifest
            .multi_label
            .then(|| SeveralLabels { labels: total.counts.iter().sum(), without: total.unlabelled }),
        classes: manifest.classes.into_iter().zip(total.counts).collect(),
        skipped: total.skipped,
        bad: total.bad,
        elapsed: started.elapsed(),
    })
}

fn find<'a>(dir: &Path, manifest: &'a Manifest, split: &str) -> Result<&'a SplitManifest, Error> {
    manifest.splits.get(split).ok_or_else(|| {
        let known: Vec<String> = manifest.splits.keys().map(|k| format!("`{k}`")).collect();
        Error::Loaders(loaders::Error::UnknownSplit {
            dir: dir.to_path_buf(),
            name: split.to_string(),
            known: known.join(", "),
        })
    })
}

impl Stats {
    /// Puts the mean and deviation into `dataset.json`, and on how many images they were measured if not on all.
    ///
    /// # Errors
    /// A split other than `train` where there is a `train`, which `dataset.json` describes; no image that could be measured; a
    /// file that cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        if self.count == 0 {
            let what = format!("split `{}` has no image that could be measured", self.split);
            return Err(Error::input(&self.dir, what));
        }
        let mut manifest = Manifest::read(&self.dir)?;
        if self.split != "train" && manifest.splits.contains_key("train") {
            return Err(Error::Usage(format!(
                "{} holds mean and std of the split `train`, not of `{}`; measure `train` to write them",
                self.dir.join(MANIFEST).display(),
                self.split
            )));
        }
        manifest.mean.clone_from(&self.mean);
        manifest.std.clone_from(&self.std);
        // of any other split they say nothing
        for (name, split) in &mut manifest.splits {
            split.measured = Some(self.count).filter(|&count| *name == self.split && count < split.count);
        }
        Ok(manifest.write(&self.dir)?)
    }

    /// The measures for scripts.
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
            "bad": self.bad.iter().map(Bad::to_json).collect::<Vec<_>>(),
            "seconds": self.elapsed.as_secs_f64(),
        });
        if let Some(SeveralLabels { labels, without }) = self.several {
            object["labels"] = labels.into();
            object["without_label"] = without.into();
        }
        object
    }
}

impl Stats {
    /// A line with a bar for each class.
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
        writeln!(f, "  mean {}  (of pixel/255)", text::decimals(&self.mean))?;
        writeln!(f, "  std  {}", text::decimals(&self.std))?;
        write!(f, "{}", self.sizes)?;
        if let Some(SeveralLabels { labels, without }) = self.several {
            let each = labels as f64 / self.count.max(1) as f64;
            write!(f, "\n  {} ({each:.2} an image), ", text::plural(labels, "label"))?;
            write!(f, "{} without one", text::plural(without, "image"))?;
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

/// Bad records of a shard that are kept by name; further ones are only counted, so that memory stays small.
const NAMED: usize = 1000;

/// Measures of some images.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub images: u64,
    /// Sums over grey images.
    grey: Moments,
    /// Sums over images with more channels.
    colour: Moments,
    /// Images of each class.
    pub counts: Vec<u64>,
    /// Images of no class.
    pub unlabelled: u64,
    pub sizes: Sizes,
    /// Records without a usable image.
    pub skipped: u64,
    pub bad: Vec<Bad>,
}

impl Measured {
    /// Measures of no images, with a count for each class.
    pub fn new(classes: usize) -> Self {
        Self { counts: vec![0; classes], ..Self::default() }
    }

    /// Measures `shard` of the data set in `dir`.
    ///
    /// # Errors
    /// A shard that cannot be opened or read, or that holds another number of records than in `dataset.json`; faults of single
    /// records are noted.
    pub fn shard(
        dir: &Path,
        shard: &ShardManifest,
        manifest: &Manifest,
        counter: &mut Counter<'_>,
    ) -> Result<Self, Error> {
        let path = dir.join(&shard.file);
        let mut walk = Walk::open(&path)?;
        let mut measured = Self::new(manifest.classes.len());
        let mut pixels = Pixels::default();
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
                measured.note(Bad::record(&shard.file, at, what));
            }
        }
        if records == shard.count {
            return Ok(measured);
        }
        let (found, expected) = (text::plural(records, "record"), shard.count);
        Err(Error::input(
            &path,
            format!("holds {found}, dataset.json says {expected}; check with `trireme data verify`"),
        ))
    }

    /// Continues behind the record `at`, whose length cannot be trusted, and counts the records that it hides; returns the
    /// number of records up to there. Without an index it hides all that follow, which is added to `fault`.
    fn resume(
        &mut self,
        path: &Path,
        walk: &mut Walk,
        at: Position,
        count: u64,
        fault: &mut Option<String>,
    ) -> Result<u64, Error> {
        let records = at.record + 1;
        let next = ShardIndex::read(path).ok().and_then(|index| index.next(at.offset, walk.length()));
        if let Some(next) = next {
            walk.resume(next)?;
            self.skipped += next.record.saturating_sub(records);
            return Ok(records);
        }
        if count <= records {
            return Ok(records);
        }
        let behind = text::plural(count - records, "record");
        *fault = fault.take().map(|what| format!("{what}; so the {behind} behind it could not be found"));
        self.skipped += count - records;
        Ok(count)
    }

    fn note(&mut self, bad: Bad) {
        self.skipped += 1;
        if self.bad.len() < NAMED {
            self.bad.push(bad);
        }
    }

    fn record(&mut self, found: &Found<'_>, manifest: &Manifest, pixels: &mut Pixels) -> Result<(), String> {
        let payload = found.payload.map_err(|e| e.to_string())?;
        let example = example::parse(payload).map_err(|e| e.to_string())?;
        let classes = manifest::classes(&example, manifest)?;
        let (image, spec) = pixels.decode(&example)?;
        self.add(image, spec)?;
        self.unlabelled += u64::from(classes.is_empty());
        classes.into_iter().for_each(|class| self.counts[class] += 1);
        Ok(())
    }

    fn add(&mut self, image: &[u8], spec: ImageSpec) -> Result<(), String> {
        let moments = if spec.channels == 1 { &mut self.grey } else { &mut self.colour };
        moments.add(image, spec.channels as usize)?;
        self.sizes.add(spec);
        self.images += 1;
        Ok(())
    }

    /// Adds the measures of another shard; the error says how their images differ.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        self.grey.merge(&other.grey)?;
        self.colour.merge(&other.colour)?;
        self.sizes.merge(&other.sizes);
        self.images += other.images;
        self.unlabelled += other.unlabelled;
        self.skipped += other.skipped;
        self.bad.extend(other.bad);
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        Ok(())
    }

    /// Mean and deviation per channel. Grey images among coloured ones count as colours, as in training.
    pub fn finish(&self) -> (Vec<f64>, Vec<f64>) {
        match self.colour.channels() {
            0 => self.grey.finish(),
            channels => {
                let mut all = self.grey.repeated(channels);
                // Both have so many channels, or none.
                match all.merge(&self.colour) {
                    Ok(()) => all.finish(),
                    Err(_) => self.colour.finish(),
                }
            }
        }
    }
}
