//! Divides the data of each step among workers and ranks.

use loaders::order::{rank_workers, worker_positions};

/// The division of the data among steps, workers and ranks.
#[derive(Clone, Debug)]
pub struct Division {
    /// Images in the training split.
    pub images: u64,
    pub batch: usize,
    /// Number of workers. The images of each step are divided among them.
    pub workers: usize,
    /// Indexes of this rank's workers.
    pub mine: std::ops::Range<usize>,
    /// Steps per epoch, including a shorter last step.
    pub steps_per_epoch: u64,
}

impl Division {
    pub fn new(images: u64, batch: usize, workers: usize, rank: usize, ranks: usize) -> Self {
        let steps_per_epoch = images.div_ceil(batch as u64);
        Self { images, batch, workers, mine: rank_workers(rank, ranks, workers), steps_per_epoch }
    }

    /// Returns the number of images in a step. The last step of an epoch may be smaller.
    pub fn images_of(&self, step: u64) -> usize {
        (self.images - step * self.batch as u64).min(self.batch as u64) as usize
    }

    /// Returns the largest number of images that any worker gets in a step. All layouts are planned for this batch
    /// size.
    pub fn largest(&self) -> usize {
        self.images_of(0).div_ceil(self.workers)
    }

    /// Returns all batch sizes that occur on this rank's workers.
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
