//! cuDNN: its handle, and convolutions by its graph interface, channels last.

mod candidates;
mod choice;
mod convolution;
mod descriptor;
#[cfg(test)]
mod tests;
mod way;

use cudarc::cudnn::sys;

pub use candidates::Prepared;
pub use choice::choose;
pub use convolution::{Convolution, Direction, Tensor};

use super::driver::status::cudnn;
use super::driver::stream::Stream;
use crate::backend::Error;
use choice::Fastest;
use descriptor::{Descriptor, RawHandle};

/// The library on one card, enqueuing on one stream.
pub struct Handle {
    raw: sys::cudnnHandle_t,
    fastest: Fastest,
}

impl Handle {
    /// For this stream, whose context must be bound.
    pub fn new(stream: &Stream) -> Result<Self, Error> {
        stream.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is there, the pointer valid for the call; destroyed in `drop`.
        cudnn(unsafe { sys::cudnnCreate(&mut raw) }, "cudnnCreate", "its handle")?;
        let handle = Self { raw, fastest: Fastest::load(&stream.context().card.name) };
        // SAFETY: handle and stream live; both types name CUDA's one stream type.
        cudnn(unsafe { sys::cudnnSetStream(raw, stream.handle().cast()) }, "cudnnSetStream", "its stream")?;
        Ok(handle)
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
    /// A card.
    Card(&'a Handle),
    /// A card that need not be there, by its properties: plans can be made and checked, not run.
    #[cfg_attr(not(test), allow(dead_code))]
    Described(Descriptor),
}

impl Device<'_> {
    fn handle(&self) -> Option<RawHandle> {
        match self {
            Device::Card(handle) => Some(RawHandle(handle.raw)),
            Device::Described(_) => None,
        }
    }
}
