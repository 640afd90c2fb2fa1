//! How the steps of a run divide the data among workers and ranks.

use loaders::order::{rank_workers, worker_positions};

/// How the steps of a run divide the data.
#[derive(Clone, Debug)]
pub struct Division {
    /// Images of the training split.
    pub images: u64,
    /// Images a step.
    pub batch: usize,
    /// Logical shares of each step.
    pub workers: usize,
    /// This rank's.
    pub mine: std::ops::Range<usize>,
    /// Steps of an epoch, a short last one included.
    pub steps_per_epoch: u64,
}

impl Division {
    /// For this rank of so many.
    pub fn new(images: u64, batch: usize, workers: usize, rank: usize, ranks: usize) -> Self {
        let steps_per_epoch = images.div_ceil(batch as u64);
        Self { images, batch, workers, mine: rank_workers(rank, ranks, workers), steps_per_epoch }
    }

    /// Images of a step of an epoch: the last one may be short.
    pub fn images_of(&self, step: u64) -> usize {
        (self.images - step * self.batch as u64).min(self.batch as u64) as usize
    }

    /// Images of the largest worker on any rank: the plan that settles all layouts.
    pub fn largest(&self) -> usize {
        self.images_of(0).div_ceil(self.workers)
    }

    /// Sizes of this rank's workers that will come up.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = [self.images_of(0), self.images_of(self.steps_per_epoch - 1)]
            .into_iter()
            .flat_map(|b| self.mine.clone().map(move |v| worker_positions(b, v, self.workers).len()))
            .filter(|n| *n > 0)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}
