//! A bucket's sum by a codec that rounds, and in every k-th epoch by `exact`: TernGrad's floating_grad_epoch.

use backend::Backend;
use comm::World;

use crate::train::reduce::bucket_sum::{BucketSum, SumStep};
use crate::train::reduce::costs::Timed;
use crate::train::reduce::error::Error;

/// Which epochs are exact, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactEpochs {
    /// k: the epochs k, 2 k, ..., counted from 1.
    pub every: u32,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
}

impl ExactEpochs {
    /// Whether the step after `done` others is exact.
    fn has(self, done: u64) -> bool {
        (done / self.steps_per_epoch.max(1) + 1).is_multiple_of(u64::from(self.every))
    }
}

/// Both sums of a bucket.
pub struct Alternating<B: Backend> {
    /// By the codec that rounds.
    pub coded: Box<dyn BucketSum<B>>,
    /// By `exact`.
    pub exact: Box<dyn BucketSum<B>>,
    /// When which.
    pub epochs: ExactEpochs,
}

impl<B: Backend> BucketSum<B> for Alternating<B> {
    fn prepare(&mut self, gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        self.coded.prepare(gradients)?;
        // one codec may be the device's and the other the host's
        if self.coded.codes_on_device() != self.exact.codes_on_device() {
            self.exact.prepare(gradients)
        } else {
            Ok(())
        }
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error> {
        let chosen = if self.epochs.has(step.done) { &mut self.exact } else { &mut self.coded };
        chosen.sum(world, gradients, step)
    }

    fn codes_on_device(&self) -> bool {
        self.coded.codes_on_device()
    }

    fn residual(&mut self, worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        self.coded.residual(worker)
    }

    fn set_residual(&mut self, worker: usize, values: &[f32]) -> Result<(), backend::Error> {
        self.coded.set_residual(worker, values)
    }

    fn memory(&self) -> usize {
        self.coded.memory() + self.exact.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_epoch() {
        let epochs = ExactEpochs { every: 3, steps_per_epoch: 2 };
        let exact: Vec<u64> = (0..14).filter(|done| epochs.has(*done)).collect();
        assert_eq!(exact, [4, 5, 10, 11]);
        assert!((0..9).all(|done| ExactEpochs { every: 1, ..epochs }.has(done)));
    }
}
