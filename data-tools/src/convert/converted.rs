//! The summary of a conversion, for people and for scripts.

use super::plan::TRAIN;
use super::spent::Spent;
use crate::text;
use loaders::Manifest;
use serde_json::json;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// File of a data set with a line for each image that was left out.
pub(super) const SKIPPED: &str = "skipped.txt";
/// Left-out images that are shown to people; the file lists all.
const SHOWN: usize = 10;

/// What a conversion has made.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The data set's folder.
    pub out: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of requested shards, where there are fewer samples than that.
    pub fewer_shards_than: Option<usize>,
    /// Shards that an earlier attempt had finished.
    pub resumed: usize,
    /// A line for each image that was left out because it cannot be used.
    pub skipped: Vec<String>,
    /// A line for each other part of the source that was left out.
    pub notes: Vec<String>,
    /// Of the threads' time.
    pub spent: Spent,
    /// Wall-clock time.
    pub elapsed: Duration,
}

impl Converted {
    /// The summary for scripts.
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
            "resumed_shards": self.resumed,
            "skipped": self.skipped,
            "notes": self.notes,
            "seconds": self.elapsed.as_secs_f64(),
            "thread_seconds": {
                "reading": self.spent.reading.as_secs_f64(),
                "decoding": self.spent.decoding.as_secs_f64(),
                "writing": self.spent.writing.as_secs_f64(),
                "syncing": self.spent.syncing.as_secs_f64(),
            },
        })
    }
}

/// One line, such as `data/mnist: train 60,000 in 16 shards, test 10,000 in 4 shards; 10 classes;
/// 68.9 MiB in 0.14 s`, and one for each thing that was left out.
impl fmt::Display for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; {}; {} in {:.2} s",
            text::path(&self.out),
            self.splits(),
            text::classes(self.manifest.classes.len()),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )?;
        if let Some(requested) = self.fewer_shards_than {
            write!(f, " ({requested} shards requested: one sample in each)")?;
        }
        if self.resumed > 0 {
            write!(f, "\n  {} of an earlier attempt kept", text::plural(self.resumed as u64, "shard"))?;
        }
        for note in &self.notes {
            write!(f, "\n  {}", loaders::printable(note))?;
        }
        self.write_skipped(f)
    }
}

impl Converted {
    /// The splits in words, `train` first, then by size.
    fn splits(&self) -> String {
        let mut splits: Vec<_> = self.manifest.splits.iter().collect();
        splits.sort_by_key(|(name, s)| (name.as_str() != TRAIN, std::cmp::Reverse(s.count)));
        let words = splits.iter().map(|(name, s)| {
            let shards = text::plural(s.shards.len() as u64, "shard");
            format!("{} {} in {shards}", loaders::shown(name), text::count(s.count))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn write_skipped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skipped.is_empty() {
            return Ok(());
        }
        let images = text::plural(self.skipped.len() as u64, "image");
        write!(f, "\n  {images} left out, all listed in {}:", text::path(&self.out.join(SKIPPED)))?;
        for line in self.skipped.iter().take(SHOWN) {
            write!(f, "\n    {line}")?;
        }
        match self.skipped.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n    and {} more", text::count(more as u64)),
        }
    }
}
