//! The CUDA driver, one concept a file: context, streams and events, device memory, page-locked memory, the kernels' compiler, and where
//! NVIDIA's libraries are found. Every return code becomes an error that names the call.

pub mod cache;
pub mod compile;
pub mod context;
pub mod library;
pub mod load;
pub mod memory;
pub mod pinned;
pub mod search;
pub mod slice;
pub mod status;
pub mod stream;
pub mod switches;
