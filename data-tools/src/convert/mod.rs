//! From a source to a data set: shards, their indexes and `dataset.json`.

mod claim;
mod converted;
mod dataset;
mod finished;
mod gate;
mod journal;
mod order;
mod output_limit;
mod pieces;
mod pipeline;
mod plan;
mod record;
mod record_stream;
mod run;
pub(crate) mod shard_writer;
mod spent;
pub(crate) mod staging;
mod stamps;
mod survey;
mod tally;
mod unpack;
mod work;

pub use converted::Converted;
pub use run::{convert, convert_source};
pub use spent::Spent;
