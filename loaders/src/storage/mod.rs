//! Data sets and their shards, file mappings and reads, information about file systems, and copies of data on a node's
//! own disk.

pub mod dataset;
pub(crate) mod fetch;
pub mod filesystem;
pub(crate) mod mapping;
pub mod read_plan;
pub mod shard;
pub mod sigbus;
pub mod stage;
