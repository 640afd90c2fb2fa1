//! Passes and steps that a device has been given and whose sums the host has not read, see [`ahead`](super::ahead).

use std::collections::VecDeque;
use std::time::Instant;

use backend::{Backend, Queue};
use engine::Gather;

use crate::train::observe::record::StepRecord;
use crate::train::plan::run::Run;
use crate::train::reduce::metrics::StepMetrics;

/// See the module.
#[derive(Default)]
pub struct Unread {
    /// In their order.
    pub passes: VecDeque<OpenPass>,
    /// In their order.
    pub steps: VecDeque<OpenStep>,
    /// When the sums of the last step were read.
    pub read: Option<Instant>,
}

/// A pass whose sums were not read.
pub struct OpenPass {
    /// Of its samples.
    pub digest: u64,
    /// Whether it is the last one of its step.
    pub last: bool,
}

/// A step whose sums were not all read.
pub struct OpenStep {
    /// Of the passes that were read.
    pub metrics: StepMetrics,
    /// Without what its sums say.
    pub record: StepRecord,
    /// Step of the epoch, from 0.
    pub of_epoch: u64,
    /// When it began.
    pub start: Instant,
    /// Whether the optimizer's step belongs to its last pass.
    pub updated: bool,
}

impl Unread {
    /// For a run whose steps need nothing of the host between pass and update; none else.
    pub fn of<B: Backend>(run: &Run<B>, ranks: usize, traced: bool) -> Option<Self> {
        let backend = run.graph.backend();
        let ahead = backend.queue().map_or(0, Queue::passes_ahead);
        let alone = ranks == 1 && run.strategy.sums_gradients() && run.reduction.gather() == Gather::Summed;
        // the scale of the losses, the norm of the gradients, traced layers and measured gradients are read after each step
        let measured = run.recipe.log.histograms.is_some() || run.recipe.optimizer.sam_rho.is_some();
        // gradients are divided by a sum of weights before the update
        let weighted = run.recipe.loss.class_weights.is_some();
        let read = backend.loss_scaling().is_some() || run.optimizer.limits_norm() || traced || measured || weighted;
        (ahead > 0 && alone && !read).then(Self::default)
    }
}
