//! Decides which samples are in which batch. This is pure arithmetic and reads no files.

mod balanced;
mod job;
mod permutation;
pub(crate) mod train;
mod window;

pub use balanced::{Balanced, EvalOrder, SubsetOrder};
pub use job::{Job, Order, rank_workers, worker_positions};
pub use permutation::Permutation;
pub use train::{Shuffle, TrainOrder};

/// Returns all jobs of an order.
#[cfg(test)]
fn jobs(mut order: impl Order) -> Vec<Job> {
    let mut job = Job::default();
    std::iter::from_fn(|| order.fill(&mut job).then(|| job.clone())).collect()
}
