//! Which samples make up which batch. Pure arithmetic; nothing is read here.

mod balanced;
mod chosen;
mod eval;
mod job;
mod permutation;
mod run;
mod share;
pub(crate) mod shuffle;
mod train;
mod window;
#[cfg(test)]
mod window_tests;

pub use balanced::Balanced;
pub use chosen::Chosen;
pub use eval::EvalOrder;
pub use job::{Job, Order};
pub use permutation::Permutation;
pub use share::{rank_workers, worker_positions};
pub use shuffle::Shuffle;
pub use train::TrainOrder;
