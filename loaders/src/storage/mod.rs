//! How records come from storage: data sets and their shards, mappings and reads, the file system, and copies on a node's own disk.

pub mod dataset;
pub(crate) mod extent;
pub(crate) mod fetch;
pub mod filesystem;
mod images;
pub mod io;
mod labels;
mod limits;
pub(crate) mod mapping;
pub(crate) mod open_shards;
pub(crate) mod page_cache;
mod read;
pub(crate) mod read_plan;
pub mod shard;
pub mod sigbus;
pub(crate) mod split;
pub mod stage;
