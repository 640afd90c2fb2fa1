//! Data sets and their shards, file mappings and reads, information about file systems, lock files, and copies of data on
//! a node's own disk.

pub mod dataset;
pub(crate) mod fetch;
pub mod filesystem;
pub mod lock_file;
mod lock_holder;
pub(crate) mod mapping;
pub mod read_plan;
pub mod shard;
pub mod sigbus;
pub mod stage;
