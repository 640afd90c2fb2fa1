//! One GPU as a backend: what it holds. What it does is in `ops`.

use std::rc::Rc;

use super::driver::context::{Context, Gpu};
use super::driver::library;
use super::driver::memory::CudaBuf;
use super::driver::slice::Slice;
use super::ops::input;
use super::record;
use super::settings::Settings;
use super::shared::Shared;
use crate::backend::{Arena, Error, Slot};

/// One GPU. Use it from the thread that opened it; its buffers may go to other threads.
pub struct Cuda {
    pub(super) shared: Rc<Shared>,
    pub(super) feed: input::Feed,
    pub(super) records: record::Records,
}

impl Cuda {
    /// The GPU of this number among those that CUDA_VISIBLE_DEVICES leaves. Fails, and says what to do, where a library, the driver
    /// or the GPU is missing or too old.
    pub fn open(ordinal: usize, settings: Settings) -> Result<Self, Error> {
        library::require_all()?;
        let context = Context::open(ordinal)?;
        let shared = Rc::new(Shared::new(&context, settings)?);
        Ok(Self { shared, feed: input::Feed::default(), records: record::Records::default() })
    }

    /// Its properties.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.context().gpu
    }
}

impl Arena<Cuda> {
    /// The elements of a slot.
    pub(super) fn at(&self, slot: Slot) -> Result<Slice<'_, f32>, Error> {
        let chunk: &CudaBuf = &self.chunks[slot.chunk];
        chunk.slice().range(slot.offset, slot.len)
    }
}
