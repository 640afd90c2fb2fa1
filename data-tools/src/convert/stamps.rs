//! Whether the files of a finished shard are still those that it was made of: a sum over their sizes and times of modification, which does
//! not depend on the order in which threads read them.

use super::order::Order;
use super::plan::Task;
use crate::error::Error;
use crate::pool;
use crate::source::Source;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Samples that a thread looks at in one go.
const TOGETHER: u64 = 256;

/// What a sample adds to the sum of its shard; nothing where its source has no files of samples.
pub(super) fn of_sample(source: &dyn Source, split: usize, index: u64) -> u64 {
    let Some(stamp) = source.stamp(split, index) else { return 0 };
    let mut hasher = DefaultHasher::new();
    (index, stamp).hash(&mut hasher);
    hasher.finish()
}

/// The sum over the samples of a shard, as their files are now, on `jobs` threads.
pub(super) fn of_shard(source: &dyn Source, order: &Order, task: &Task, jobs: usize) -> Result<u64, Error> {
    let parts = usize::try_from(task.samples().div_ceil(TOGETHER)).unwrap_or(usize::MAX);
    let sums = pool::run(parts, jobs, |part| {
        let start = task.positions.start + part as u64 * TOGETHER;
        let mut indices = Vec::new();
        order.extend(start..task.positions.end.min(start + TOGETHER), &mut indices);
        Ok(indices.into_iter().map(|index| of_sample(source, task.split, index)).fold(0, u64::wrapping_add))
    })?;
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}
