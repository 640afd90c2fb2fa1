//! The CUDA driver: contexts, streams and events, device memory, page-locked memory, the compiler for kernels, and the
//! search for NVIDIA's libraries. Every failed call becomes an error that names the call.

pub mod cache;
pub mod calls;
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
