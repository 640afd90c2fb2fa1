//! The CUDA driver, one concept a file: context, streams and events, device memory, page-locked memory, the kernels' compiler, and where
//! NVIDIA's libraries are found. Every return code becomes an error that names the call.

pub mod alias;
pub mod cache;
pub mod candidates;
pub mod compile;
pub mod context;
pub mod inlet;
pub mod launches;
pub mod library;
pub mod load;
pub mod lookup;
pub mod memory;
pub mod mirrored;
pub mod nvidia;
pub mod pinned;
pub mod places;
pub mod queues;
pub mod raw;
pub mod slice;
pub mod status;
pub mod stream;
pub mod switches;
