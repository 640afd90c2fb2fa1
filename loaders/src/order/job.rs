//! Jobs, which are the batches that a loader fills in order, and how samples and workers are divided among them.

use std::ops::Range;

/// A batch to fill: the samples of a worker in a step, or an evaluation batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Counted from 0. Part of the key of the random draws.
    pub epoch: u32,
    /// Counted from 0 within the epoch.
    pub step: u64,
    /// Number of the logical worker.
    pub worker: usize,
    /// The samples in order. Empty if a short last step has no samples for this worker.
    pub ids: Vec<u64>,
    /// The copy number of each sample, if an epoch can have more than one copy of a sample. Otherwise empty.
    pub copies: Vec<u16>,
    /// Numbers of the shards that will soon be used for the first time, so that they can be read ahead. Usually empty.
    pub ahead: Vec<usize>,
}

/// Number of bits for a sample's id in [`Job::key`]. The bits above contain the number of the copy.
const ID_BITS: u32 = 48;

impl Job {
    /// Returns the key for the random draws at `index`: the sample's id and copy number.
    pub fn key(&self, index: usize) -> u64 {
        self.ids[index] | self.copies.get(index).map_or(0, |copy| u64::from(*copy) << ID_BITS)
    }
}

/// A sequence of jobs. It determines which samples are in which batch.
pub trait Order: Send {
    /// Replaces `job` by the next job and reuses its memory. Returns `false` if there are no more jobs.
    fn fill(&mut self, job: &mut Job) -> bool;

    /// Returns the maximum number of samples per job, as far as the order knows. If jobs are small, a loader keeps more
    /// of them in memory.
    fn largest(&self) -> usize {
        1
    }
}

/// Returns the positions of worker `v` among the `b` samples of a step: floor(v*b/V) .. floor((v+1)*b/V), where V is
/// `workers`.
pub fn worker_positions(b: usize, v: usize, workers: usize) -> Range<usize> {
    let cut = |v: usize| (v as u128 * b as u128 / workers as u128) as usize;
    cut(v)..cut(v + 1)
}

/// Returns the workers of a rank: floor(r*V/N) .. floor((r+1)*V/N), where r is `rank`, V is `workers` and N is `ranks`.
pub fn rank_workers(rank: usize, ranks: usize, workers: usize) -> Range<usize> {
    worker_positions(workers, rank, ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_positions_per_worker_follow_the_floor_formula() {
        let cuts = |b, w| (0..w).map(|v| worker_positions(b, v, w)).collect::<Vec<_>>();
        assert_eq!(cuts(10, 4), [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(cuts(2, 4), [0..0, 0..1, 1..1, 1..2]);
        assert_eq!(rank_workers(0, 3, 4), 0..1);
        assert_eq!(rank_workers(1, 3, 4), 1..2);
        assert_eq!(rank_workers(2, 3, 4), 2..4);
    }
}
