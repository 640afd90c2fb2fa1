//! What was made of existing data sets, and how: for people and for scripts.

use crate::text;
use loaders::Manifest;
use serde_json::json;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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
