//! The queues of a backend: one computes; copies to the host, copies to the GPU and codes each go beside it in one of their own, so that
//! none of them waits behind another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use super::context::Context;
use super::stream::{Event, Stream};
use crate::Error;

/// See the module.
pub struct Queues {
    pub compute: Stream,
    /// From the GPU to the host.
    pub down: Stream,
    /// From the host to the GPU.
    pub up: Stream,
    /// Codes are made and read here, and travel both ways: each step needs the one before.
    pub codes: Stream,
    /// Only waits: for everything that other threads have enqueued elsewhere and the next computation must come after.
    beside: Stream,
    /// `beside` waits for something new.
    late: AtomicBool,
    caught_up: Event,
    /// The thread that enqueues to compute.
    owner: ThreadId,
}

impl Queues {
    /// For the thread that calls, which alone may enqueue to compute.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let stream = || Stream::new(context);
        let (late, caught_up) = (AtomicBool::new(false), Event::new(context)?);
        let (compute, down, up) = (stream()?, stream()?, stream()?);
        let (codes, beside, owner) = (stream()?, stream()?, thread::current().id());
        Ok(Arc::new(Self { compute, down, up, codes, beside, late, caught_up, owner }))
    }

    pub fn context(&self) -> &Arc<Context> {
        self.compute.context()
    }

    /// Whether the calling thread is the one that enqueues to compute.
    pub fn is_owner(&self) -> bool {
        thread::current().id() == self.owner
    }

    /// Makes a stream wait for all that was enqueued to compute.
    pub fn after_all(&self, stream: &Stream) -> Result<(), Error> {
        let all = Event::new(self.context())?;
        all.record(&self.compute, false)?;
        stream.wait_for(&all)
    }

    /// Work that is enqueued to compute from now on comes after this event.
    pub fn compute_after(&self, event: &Event) -> Result<(), Error> {
        self.beside.wait_for(event)?;
        self.late.store(true, Ordering::Release);
        Ok(())
    }

    /// Comes before work that is enqueued to compute: makes it wait for the events of [`Self::compute_after`].
    pub fn catch_up(&self) -> Result<(), Error> {
        if self.late.swap(false, Ordering::Acquire) {
            self.caught_up.record(&self.beside, false)?;
            self.compute.wait_for(&self.caught_up)?;
        }
        Ok(())
    }
}
