//! From a source to a data set: shards, their indexes and `dataset.json`.

mod converted;
mod dataset;
mod finished;
mod gate;
mod journal;
mod pipeline;
mod plan;
mod record;
mod run;
mod shard_writer;
mod staging;
mod survey;
mod tally;
mod work;

pub use converted::Converted;
pub use run::{convert, convert_source};
