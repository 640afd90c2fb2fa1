//! What is known of a step once it is over, for what observes a run: the log and the timing of the ranks.

use backend::{LossScale, LossSums};
use report::Step;

use super::timing::{RankTiming, spread};

/// One optimizer step, over all ranks.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Optimizer steps done, this one included.
    pub step: u64,
    /// Its learning rate.
    pub lr: f64,
    /// Its length on this rank, in seconds.
    pub seconds: f64,
    /// Loss and hits, summed over its images.
    pub loss: LossSums,
    /// Digest of which sample went to which place of which worker.
    pub samples: u64,
    /// Norm of its gradients, where they are limited by norm.
    pub grad_norm: Option<f64>,
    /// The scale of the losses, where the device scales them.
    pub scale: Option<LossScale>,
    /// Times of each rank.
    pub timings: Vec<RankTiming>,
}

impl StepRecord {
    /// The event of metrics.jsonl.
    pub fn event(&self) -> Step {
        let ranks = |of: fn(&RankTiming) -> f64| spread(self.timings.iter().map(of));
        let (data_wait_ranks, comm_wait_ranks) = (ranks(|t| t.data), ranks(|t| t.comm));
        let count = self.loss.count.max(1) as f64;
        Step {
            step: self.step,
            epoch: self.epoch,
            loss: self.loss.loss / count,
            top1: self.loss.top1 as f64 / count,
            lr: self.lr,
            img_per_s: self.loss.count as f64 / self.seconds,
            data_wait_ms: data_wait_ranks[2],
            comm_wait_ms: comm_wait_ranks[2],
            step_ms: self.seconds * 1e3,
            data_wait_ranks,
            comm_wait_ranks,
            step_ranks: ranks(|t| t.step),
            samples: self.samples,
            grad_norm: self.grad_norm,
            loss_scale: self.scale.map(|scale| scale.scale),
            lost_steps: self.scale.map(|scale| scale.lost),
        }
    }
}
