//! Which samples make up which batch. Pure arithmetic; nothing is read here.

pub mod shuffle;
mod train;
pub mod window;

pub use train::{EvalOrder, Job, Order, Permutation, TrainOrder, rank_workers, worker_positions};
