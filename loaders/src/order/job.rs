//! Jobs: the batches that a loader fills, one after another, and how samples and workers are shared out to them.

use std::ops::Range;

/// One batch to fill: the samples of one worker (or one evaluation batch).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// From 0; keys the random draws.
    pub epoch: u32,
    /// From 0 within the epoch.
    pub step: u64,
    /// The logical worker.
    pub worker: usize,
    /// The samples, in order; empty if a short last step has none for this worker.
    pub ids: Vec<u64>,
    /// Where the first of them stands in its epoch.
    pub first: u64,
    /// How often each sample comes in a row; 0 counts as 1.
    pub repeats: u32,
    /// Numbers of the shards whose first use comes soon, so that they can be read ahead. Usually empty.
    pub ahead: Vec<usize>,
}

/// Bits of a sample's id; those above say which of its copies is meant.
const ID_BITS: u32 = 48;

impl Job {
    /// What keys the draws of the sample at `index` of the job as it was filled: its id, and which copy of it this is in this epoch.
    pub fn key(&self, index: usize) -> u64 {
        let copy = match self.repeats {
            0 | 1 => 0,
            repeats => (self.first + index as u64) % u64::from(repeats),
        };
        self.ids[index] | copy << ID_BITS
    }
}

/// A sequence of jobs.
pub trait Order: Send {
    /// Puts the next job in place of `job`, reusing its memory; `false` when there is none left.
    fn fill(&mut self, job: &mut Job) -> bool;

    /// Samples of a job at most, as far as the order knows: of small ones a loader keeps more at once.
    fn largest(&self) -> usize {
        1
    }
}

/// The positions of worker `v` of `workers` among the `b` samples of a step:
/// floor(v*b/V) .. floor((v+1)*b/V).
pub fn worker_positions(b: usize, v: usize, workers: usize) -> Range<usize> {
    share(b, v, workers)
}

/// The workers that rank `rank` of `ranks` carries: floor(r*V/N) .. floor((r+1)*V/N).
pub fn rank_workers(rank: usize, ranks: usize, workers: usize) -> Range<usize> {
    share(workers, rank, ranks)
}

fn share(total: usize, part: usize, parts: usize) -> Range<usize> {
    let cut = |part: usize| (part as u128 * total as u128 / parts as u128) as usize;
    cut(part)..cut(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_floor_formulas() {
        let cuts = |b, w| (0..w).map(|v| worker_positions(b, v, w)).collect::<Vec<_>>();
        assert_eq!(cuts(10, 4), [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(cuts(2, 4), [0..0, 0..1, 1..1, 1..2]);
        assert_eq!(rank_workers(0, 3, 4), 0..1);
        assert_eq!(rank_workers(1, 3, 4), 1..2);
        assert_eq!(rank_workers(2, 3, 4), 2..4);
    }
}
