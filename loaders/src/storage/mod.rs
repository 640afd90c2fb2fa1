//! How records come from storage.

pub mod dataset;
pub(crate) mod fetch;
pub mod filesystem;
pub mod io;
pub(crate) mod mapping;
pub mod shard;
pub mod sigbus;
pub mod stage;
