//! The CUDA backend. cuDNN computes convolutions, cuBLASLt computes matrix products, and our own kernels compute the
//! rest. NVRTC compiles these kernels for the GPU at hand. Images are stored channels last. Passes and updates share a
//! stream. Copies and gradient codecs have their own streams, see `Queues`. The host waits only for the sums of a
//! pass's loss.
//!
//! NVIDIA's libraries are loaded when a GPU is requested, so the same binary runs with and without them.

mod backend;
mod chosen;
mod cublaslt;
mod device;
mod layout;
mod nccl;
mod ops;
mod pass;
mod record;
mod settings;
mod shared;
mod step;

/// cuDNN: its handle, and convolutions with its graph API, channels last.
mod cudnn {
    pub mod candidates;
    pub mod choice;
    pub mod convolution;
    pub mod descriptor;
    pub mod fastest;
    #[cfg(test)]
    mod tests;
}

/// The CUDA driver: contexts, streams and events, device memory, page-locked memory, the compiler for kernels, and the
/// search for NVIDIA's libraries. Every failed call becomes an error that names the call.
mod driver {
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
}

/// Our kernels: their sources, loading them, and their declarations, with which the host launches them. An operation's
/// own kernels are declared in its file in `ops`, the optimizer's in `update`, and the rest in `declarations`.
mod kernels {
    #[cfg(test)]
    mod assembly;
    pub mod declarations;
    pub mod kernel;
    pub mod module;
    mod source;
    pub mod update;

    #[cfg(test)]
    pub use source::signature;
}

pub use crate::Precision;
pub use device::{Cuda, CudaDevice, visible};
pub use driver::context::{Gpu, gpu_count};
pub use driver::library;
pub use driver::memory::CudaBuf;
pub use layout::Format;
pub use settings::Settings;
