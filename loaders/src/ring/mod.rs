//! The prefetch ring.

pub mod bench;
pub mod loader;
pub mod nice;
mod slot;
pub mod stats;
mod worker;
