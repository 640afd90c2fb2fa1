//! How records come from storage: data sets and their shards, mappings and reads, the file system, and copies on a node's own disk.

pub mod dataset;
pub(crate) mod fetch;
pub mod filesystem;
pub(crate) mod mapping;
pub mod read_plan;
pub mod shard;
pub mod sigbus;
pub mod stage;
