//! cuDNN's handle, and what plans are made for.

use cudarc::cudnn::sys;

use super::descriptor::{Descriptor, RawHandle};
use super::fastest::Fastest;
use crate::Error;
use crate::cuda::driver::status::cudnn;
use crate::cuda::driver::stream::Stream;

/// The library on one GPU, enqueuing on one stream.
pub struct Handle {
    raw: sys::cudnnHandle_t,
    /// The fastest algorithms that are known.
    pub fastest: Fastest,
}

impl Handle {
    /// For this stream, whose context must be bound.
    pub fn new(stream: &Stream) -> Result<Self, Error> {
        stream.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is there, the pointer valid for the call; destroyed in `drop`.
        cudnn(unsafe { sys::cudnnCreate(&mut raw) }, "cudnnCreate", "its handle")?;
        let handle = Self { raw, fastest: Fastest::load(&stream.context().gpu.name) };
        // SAFETY: handle and stream live; both types name CUDA's one stream type.
        cudnn(unsafe { sys::cudnnSetStream(raw, stream.handle().cast()) }, "cudnnSetStream", "its stream")?;
        Ok(handle)
    }

    /// For calls.
    pub fn raw(&self) -> sys::cudnnHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cudnnDestroy(self.raw) };
    }
}

/// For whom plans are made.
pub enum Device<'a> {
    /// A GPU.
    Gpu(&'a Handle),
    /// A GPU that need not be there, by its properties: plans can be made and checked, not run.
    #[cfg_attr(not(test), allow(dead_code))]
    Described(Descriptor),
}

impl Device<'_> {
    pub fn handle(&self) -> Option<RawHandle> {
        match self {
            Device::Gpu(handle) => Some(RawHandle(handle.raw)),
            Device::Described(_) => None,
        }
    }
}
