//! The prefetch ring: threads that fill batches ahead of time, their consumer, and what it measures.

mod advice;
pub(crate) mod batch;
pub mod bench;
mod fill;
pub(crate) mod footprint;
pub(crate) mod loader;
mod nice;
pub(crate) mod options;
pub(crate) mod pixel_format;
mod reader;
mod shared;
pub(crate) mod slot;
pub mod stats;
mod totals;
mod worker;
