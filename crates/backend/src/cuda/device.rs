//! One GPU as a device: what it holds, its memory, and the passes over flat arrays.

use std::ops::Range;
use std::rc::Rc;

use super::clock::Clock;
use super::driver::context::{Context, Gpu};
use super::driver::library;
use super::driver::memory::{self, CudaBuf};
use super::driver::slice::Slice;
use super::format::Format;
use super::ops::{input, update};
use super::record;
use super::settings::{Precision, Settings};
use super::shared::Shared;
use crate::{Arena, DeviceMemory, Error, Region, Slot, TensorDesc};

/// One GPU. Use it from the thread that opened it; its buffers may go to other threads.
pub struct Cuda {
    pub(super) shared: Rc<Shared>,
    pub(super) feed: input::Feed,
    pub(super) records: record::Records,
    pub(super) clock: Clock,
}

impl Cuda {
    /// The GPU of this number among those that CUDA_VISIBLE_DEVICES leaves. Fails, and says what to do, where a library, the driver
    /// or the GPU is missing or too old.
    pub fn open(ordinal: usize, settings: Settings) -> Result<Self, Error> {
        library::require_all()?;
        let context = Context::open(ordinal)?;
        let shared = Rc::new(Shared::new(&context, settings)?);
        let (feed, records, clock) = (input::Feed::default(), record::Records::default(), Clock::default());
        Ok(Self { shared, feed, records, clock })
    }

    /// Its properties.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.context().gpu
    }
}

impl DeviceMemory for Cuda {
    type Buf = CudaBuf;
    type Format = Format;
    type Fusion = ();

    fn alloc(&self, elems: usize) -> Result<CudaBuf, Error> {
        self.shared.start()?;
        self.shared.alloc(elems, "tensors")
    }

    fn region(&self, elems: usize, _: &[Range<usize>]) -> Result<Box<dyn Region<CudaBuf>>, Error> {
        Ok(Box::new(memory::Region::new(self.alloc(elems)?)))
    }

    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        self.shared.context().memory().map(|(free, _)| Some(free))
    }

    fn scratch_bytes(&self) -> usize {
        self.shared.scratch_bytes()
    }

    fn parameter_bytes(&self) -> usize {
        // in 16 bits, too
        if self.shared.settings.precision == Precision::F32 { 4 } else { 6 }
    }

    fn words(&self, desc: &TensorDesc) -> usize {
        self.shared.words(desc.elems())
    }

    fn copy(&self, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        self.shared.start()?;
        to.copy_from(from)
    }

    fn zero(&self, to: &mut CudaBuf) -> Result<(), Error> {
        self.shared.start()?;
        to.clear()
    }

    fn add(&self, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        update::add(&self.shared, to, from)
    }

    fn scale(&self, to: &mut CudaBuf, factor: f32) -> Result<(), Error> {
        update::scale(&self.shared, to, factor)
    }

    fn clamp(&self, x: &mut CudaBuf, limit: f32) -> Result<(), Error> {
        update::clamp(&self.shared, x, limit)
    }

    fn lerp(&self, to: &mut CudaBuf, from: &CudaBuf, _: f32) -> Result<(), Error> {
        update::lerp(&self.shared, to, from)
    }
}

impl Arena<Cuda> {
    /// The elements of a slot.
    pub(super) fn at(&self, slot: Slot) -> Result<Slice<'_, f32>, Error> {
        let chunk: &CudaBuf = &self.chunks[slot.chunk];
        chunk.slice().range(slot.offset, slot.len)
    }
}
