//! The CUDA driver, one concept a file: context, streams and events, device memory, page-locked memory, the kernels' compiler. Every
//! return code becomes an error that names the call.

pub mod cache;
pub mod compile;
pub mod context;
pub mod inlet;
pub mod launches;
pub mod library;
pub mod lookup;
pub mod memory;
pub mod mirrored;
pub mod pinned;
pub mod queues;
pub mod raw;
pub mod slice;
pub mod status;
pub mod stream;
