//! Which samples make up which batch. Pure arithmetic; nothing is read here.

mod balanced;
mod eval;
mod job;
mod permutation;
pub(crate) mod train;
mod window;
#[cfg(test)]
mod window_tests;

pub use balanced::Balanced;
pub use eval::{Chosen, EvalOrder};
pub use job::{Job, Order};
pub use permutation::Permutation;
pub use train::{Shuffle, TrainOrder, rank_workers, worker_positions};
