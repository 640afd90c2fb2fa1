//! Jobs: the batches that a loader fills, one after another.

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
    /// Numbers of the shards whose first use comes soon, so that they can be read ahead. Usually empty.
    pub ahead: Vec<usize>,
}

/// A sequence of jobs.
pub trait Order: Send {
    /// Puts the next job in place of `job`, reusing its memory; `false` when there is none left.
    fn fill(&mut self, job: &mut Job) -> bool;
}
