//! The CUDA backend. cuDNN computes convolutions, cuBLASLt computes matrix products, and our own kernels compute
//! everything else. NVRTC compiles them for the GPU at hand. Images are stored channels last. All computation is
//! enqueued on one stream, and the host waits only for the sums of a pass.
//!
//! NVIDIA's libraries are loaded when a GPU is requested, so the same binary runs with and without them.

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
