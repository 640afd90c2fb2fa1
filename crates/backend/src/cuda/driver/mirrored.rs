//! Elements with a place on the GPU and one on the host, copied from one to the other on the codes' queue.

use std::sync::Arc;

use super::memory::CudaBuf;
use super::pinned::Pinned;
use super::queues::Queues;
use super::slice::{Plain, Slice};
use crate::Error;

/// See the module.
pub struct Mirrored<T> {
    device: CudaBuf,
    host: Pinned<T>,
    len: usize,
}

impl<T: Plain> Mirrored<T> {
    /// Zeros on both sides.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let words = (len * size_of::<T>()).div_ceil(4);
        Ok(Self { device: CudaBuf::zeroed(queues, words, what)?, host: Pinned::new(queues.context(), len, what)?, len })
    }

    /// The elements on the GPU, as they are or as another type of their size.
    pub fn slice<U: Plain>(&self) -> Slice<'_, U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        self.device.slice()
    }

    /// The elements on the host.
    pub fn host(&mut self) -> &mut [T] {
        self.host.as_mut_slice()
    }

    /// Bytes on both sides.
    pub fn bytes(&self) -> usize {
        self.device.bytes() + size_of_val(self.host.as_slice())
    }

    /// Enqueues their way to the host.
    pub fn down(&mut self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.receive(self.device.slice().range(0, self.len)?, &queues.codes) }
    }

    /// Enqueues their way to the GPU.
    pub fn up(&self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.send(self.device.slice().range(0, self.len)?, &queues.codes) }
    }
}
