//! The prefetch ring: threads that fill batches ahead of time, the consumer's side, and statistics.

pub(crate) mod batch;
pub mod bench;
mod fill;
pub(crate) mod loader;
mod nice;
pub(crate) mod options;
mod piece;
mod reader;
mod shared;
pub(crate) mod slot;
pub mod stats;
mod worker;
