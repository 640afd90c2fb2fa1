//! Converts a source to a data set: shards, their indexes and `dataset.json`.

mod converted;
mod dataset;
mod journal;
mod order;
mod pipeline;
mod run;
pub(crate) mod shard_writer;
pub(crate) mod staging;
mod unpack;
mod work;

pub use converted::{Converted, Spent};
pub use run::{convert, convert_source};
