//! Small blocks on the card that the host writes anew before each pass or step.

use std::sync::Arc;

use crate::backend::Error;
use crate::backend::cuda::driver::memory::{CudaBuf, Queues};
use crate::backend::cuda::driver::pinned::{Pinned, Plain};
use crate::backend::cuda::driver::stream::{Event, Stream};

/// A block on the card that the host writes anew again and again, without waiting for the card.
pub struct Inlet<T> {
    card: CudaBuf,
    host: Pinned<T>,
    sent: Event,
}

impl<T: Plain> Inlet<T> {
    /// Room for so many elements.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let (context, bytes) = (queues.context(), len * size_of::<T>());
        let host = Pinned::new(context, len, what)?;
        Ok(Self { card: CudaBuf::zeroed(queues, bytes.div_ceil(4).max(4), what)?, host, sent: Event::new(context)? })
    }

    /// Elements that fit.
    pub fn room(&self) -> usize {
        self.host.as_slice().len()
    }

    /// Where the card finds them.
    pub fn address(&self) -> u64 {
        self.card.address()
    }

    /// What the host has written last.
    pub fn values(&self) -> &[T] {
        self.host.as_slice()
    }

    /// Writes the elements that the work enqueued from here on finds.
    pub fn write(&mut self, values: &[T], stream: &Stream) -> Result<(), Error> {
        if values.len() > self.room() {
            let (expected, got) = (format!("at most {} values", self.room()), values.len().to_string());
            return Err(Error::Size { op: "a block for the card".into(), expected, got });
        }
        // the copy of the values before must be over
        self.sent.wait()?;
        self.host.as_mut_slice()[..values.len()].copy_from_slice(values);
        self.host.send(values.len(), self.address(), stream)?;
        self.sent.record(stream, false)
    }
}
