//! The prefetch ring: threads that fill batches ahead of time, their consumer, and what it measures.

mod advice;
pub(crate) mod batch;
pub mod bench;
mod division;
mod fill;
pub(crate) mod footprint;
mod jobs;
pub(crate) mod loader;
mod nice;
mod open_batch;
pub(crate) mod options;
mod piece;
pub(crate) mod pixel_format;
mod reader;
mod samples;
mod shared;
pub(crate) mod slot;
pub mod stats;
mod totals;
mod worker;
