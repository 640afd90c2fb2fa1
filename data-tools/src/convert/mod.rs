//! From a source to a data set: shards, their indexes and `dataset.json`.

mod converted;
mod journal;
mod pipeline;
mod run;
mod shard_writer;
mod staging;
mod tally;
mod work;

pub use converted::Converted;
pub use run::{convert, convert_source};
