//! Measures one split: mean and deviation of its pixels, images of each class.

use crate::error::Error;
use crate::moments::{self, Moments};
use crate::progress::Progress;
use crate::scan::{self, Scanned};
use crate::{pool, text};
use loaders::dataset::MANIFEST;
use loaders::{Manifest, SplitManifest};
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Name and number of images of each class, in the order of the labels.
    pub classes: Vec<(String, u64)>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Measures the split named `split` of the data set in `dir` on `jobs` threads (0: one for each
/// core).
///
/// The sums are exact integers, so the result is the same for any number of threads. PNG and JPEG
/// are decoded.
///
/// # Errors
/// No such split; a record that is damaged, cannot be decoded or has no valid label; counts other
/// than in `dataset.json`.
pub fn stats(dir: &Path, split: &str, jobs: usize) -> Result<Stats, Error> {
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let found = find(dir, &manifest, split)?;
    let progress = Progress::new("measuring", Some(found.count), true);
    let parts = pool::run(found.shards.len(), jobs, |i| {
        let shard = &found.shards[i];
        let path = dir.join(&shard.file);
        let scanned = scan::scan(&path, true, &mut progress.counter())?;
        if scanned.entries.len() as u64 != shard.count {
            return Err(Error::input(
                &path,
                format!(
                    "holds {}, dataset.json says {}; check with `trireme data verify`",
                    text::plural(scanned.entries.len() as u64, "record"),
                    shard.count
                ),
            ));
        }
        let counts = class_counts(&path, &scanned, &manifest)?;
        Ok((scanned.moments, counts))
    })?;
    drop(progress);
    let mut total = Moments::default();
    let mut counts = vec![0; manifest.classes.len()];
    for (shard, (part, part_counts)) in found.shards.iter().zip(&parts) {
        moments::merge(&mut total, part, &dir.join(&shard.file))?;
        for (sum, n) in counts.iter_mut().zip(part_counts) {
            *sum += n;
        }
    }
    let (mean, std) = total.finish();
    Ok(Stats {
        dir: dir.to_path_buf(),
        split: split.to_string(),
        count: found.count,
        mean,
        std,
        classes: manifest.classes.into_iter().zip(counts).collect(),
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

fn class_counts(path: &Path, scanned: &Scanned, manifest: &Manifest) -> Result<Vec<u64>, Error> {
    let mut counts = vec![0; manifest.classes.len()];
    for (&label, seen) in &scanned.labels {
        let class = label
            .checked_sub(manifest.label_offset)
            .and_then(|l| usize::try_from(l).ok())
            .and_then(|l| counts.get_mut(l));
        match class {
            Some(count) => *count += seen.count,
            None => {
                return Err(Error::Record {
                    shard: path.to_path_buf(),
                    record: seen.record,
                    offset: seen.offset,
                    what: label_fault(label, manifest),
                });
            }
        }
    }
    Ok(counts)
}

/// The words for a label that is no class.
pub(crate) fn label_fault(label: i64, manifest: &Manifest) -> String {
    let first = i128::from(manifest.label_offset);
    let last = first + manifest.classes.len() as i128 - 1;
    format!(
        "label {label} is out of range; expected {first} to {last}: check `classes` and `label_offset` in dataset.json"
    )
}

impl Stats {
    /// Puts the mean and deviation into `dataset.json`.
    ///
    /// # Errors
    /// A split other than `train` where there is `train`, since that is what `dataset.json`
    /// describes; a file that cannot be written.
    pub fn write(&self) -> Result<(), Error> {
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
        Ok(manifest.write(&self.dir)?)
    }

    /// The same for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let classes: Vec<_> = self.classes.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        json!({
            "dir": self.dir.display().to_string(),
            "split": self.split,
            "count": self.count,
            "mean": self.mean,
            "std": self.std,
            "classes": classes,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {}: {} in {:.2} s",
            self.dir.display(),
            self.split,
            text::plural(self.count, "image"),
            self.elapsed.as_secs_f64()
        )?;
        writeln!(f, "  mean {}  (of pixel/255)", text::decimals(&self.mean))?;
        write!(f, "  std  {}", text::decimals(&self.std))?;
        let width = self.classes.iter().map(|(n, _)| n.chars().count()).max();
        let width = width.unwrap_or(0);
        for (i, (name, count)) in self.classes.iter().enumerate() {
            write!(f, "\n  {i:>4} {name:width$} {:>11}", text::count(*count))?;
        }
        Ok(())
    }
}
