//! Small blocks on the GPU that the host writes anew before each pass or step.

use std::sync::Arc;

use super::memory::CudaBuf;
use super::pinned::Pinned;
use super::queues::Queues;
use super::slice::{Plain, Slice};
use super::stream::{Event, Stream};
use crate::Error;

/// A block on the GPU that the host writes anew again and again, without waiting for the GPU.
pub struct Inlet<T> {
    device: CudaBuf,
    host: Pinned<T>,
    sent: Event,
}

impl<T: Plain> Inlet<T> {
    /// Room for so many elements.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let (context, bytes) = (queues.context(), len * size_of::<T>());
        let host = Pinned::new(context, len, what)?;
        Ok(Self { device: CudaBuf::zeroed(queues, bytes.div_ceil(4).max(4), what)?, host, sent: Event::new(context)? })
    }

    /// Elements that fit.
    pub fn room(&self) -> usize {
        self.host.as_slice().len()
    }

    /// The elements on the GPU.
    pub fn slice(&self) -> Slice<'_, T> {
        self.device.slice()
    }

    /// The block as elements of another type.
    pub fn slice_as<U: Plain>(&self) -> Slice<'_, U> {
        self.device.slice()
    }

    /// What the host has written last.
    pub fn values(&self) -> &[T] {
        self.host.as_slice()
    }

    /// Writes the elements for the work that is enqueued afterwards.
    pub fn write(&mut self, values: &[T], stream: &Stream) -> Result<(), Error> {
        self.lay_out(values)?;
        self.host.send(self.device.slice().range(0, values.len())?, stream)?;
        self.sent.record(stream, false)
    }

    /// The same by a kernel that `launch` enqueues: it copies the elements of the first slice to the second.
    pub fn write_by(
        &mut self,
        values: &[T],
        stream: &Stream,
        launch: impl FnOnce(Slice<'_, T>, Slice<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.lay_out(values)?;
        launch(self.host.slice().range(0, values.len())?, self.device.slice().range(0, values.len())?)?;
        self.sent.record(stream, false)
    }

    /// Puts the elements where the next copy takes them.
    fn lay_out(&mut self, values: &[T]) -> Result<(), Error> {
        if values.len() > self.room() {
            let (expected, got) = (format!("at most {} values", self.room()), values.len().to_string());
            return Err(Error::Size { op: "a block for the GPU".into(), expected, got });
        }
        // the copy of the values before must be over
        self.sent.wait()?;
        self.host.as_mut_slice()[..values.len()].copy_from_slice(values);
        Ok(())
    }
}
