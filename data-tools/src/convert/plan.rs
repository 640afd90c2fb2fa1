//! Which samples go into which shard.

use crate::error::Error;
use crate::source::Source;
use std::ops::Range;
use std::path::Path;

/// The split that the mean and deviation of `dataset.json` describe.
pub(super) const TRAIN: &str = "train";

/// One shard to be written.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// Number of its split.
    pub split: usize,
    /// File name.
    pub name: String,
    /// Positions in the shuffled order of the split.
    pub positions: Range<u64>,
}

impl Task {
    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.positions.end - self.positions.start
    }
}

/// All shards of all splits: `shards` of `train`, a quarter of that of the others, never more than samples.
pub(super) fn plan(source: &dyn Source, shards: usize) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (split, info) in source.splits().iter().enumerate() {
        if info.len == 0 {
            return Err(Error::input(Path::new(&info.name), "this split has no samples"));
        }
        let requested = if info.name == TRAIN { shards } else { (shards / 4).max(1) };
        let count = (requested as u64).min(info.len);
        let bound = |i: u64| (u128::from(i) * u128::from(info.len) / u128::from(count)) as u64;
        tasks.extend((0..count).map(|shard| Task {
            split,
            name: format!("{}-{shard:05}-of-{count:05}.tfrecord", info.name),
            positions: bound(shard)..bound(shard + 1),
        }));
    }
    Ok(tasks)
}
