//! The CUDA backend: convolutions are cuDNN's, matrix products cuBLASLt's, everything else kernels of our own, compiled by NVRTC for
//! the GPU that is found. Images lie channels last. Everything is enqueued on one stream; the host waits only for a pass's sums.
//!
//! NVIDIA's libraries are loaded when a GPU is requested, so one binary runs with and without them.

mod backend;
mod chosen;
mod clock;
mod cublaslt;
mod cudnn;
mod device;
mod driver;
mod kernels;
mod layout;
mod nccl;
mod ops;
mod pass;
mod queue;
mod record;
mod settings;
mod shared;
mod step;

pub use crate::Precision;
pub use device::{Cuda, CudaDevice, visible};
pub use driver::context::{Gpu, gpu_count};
pub use driver::library;
pub use driver::memory::CudaBuf;
pub use layout::Format;
pub use settings::Settings;
