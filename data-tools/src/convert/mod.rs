//! Converts a source to a data set: shards, their indexes and `dataset.json`.

mod dataset;
mod journal;
pub(crate) mod order;
mod pipeline;
mod run;
pub(crate) mod shard_writer;
pub(crate) mod staging;
pub(crate) mod summary;
pub(crate) mod survey;
mod unpack;
mod work;

pub use run::{convert, convert_source};
pub use summary::{ConvertSummary, ThreadTimes};
