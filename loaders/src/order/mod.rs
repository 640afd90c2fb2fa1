//! Which samples make up which batch. Pure arithmetic; nothing is read here.

mod balanced;
mod job;
mod permutation;
pub(crate) mod train;
mod window;

pub use balanced::{Balanced, Chosen, EvalOrder};
pub use job::{Job, Order, rank_workers, worker_positions};
pub use permutation::Permutation;
pub use train::{Shuffle, TrainOrder};
