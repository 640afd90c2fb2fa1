//! The queues of a backend: one computes; copies to the host, copies to the GPU and codes each go beside it in one of their own, so that
//! none of them waits behind another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::Context;
use super::stream::{Event, Stream};
use crate::backend::Error;

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
}

impl Queues {
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let stream = || Stream::new(context);
        let (late, caught_up) = (AtomicBool::new(false), Event::new(context)?);
        let (compute, down, up) = (stream()?, stream()?, stream()?);
        Ok(Arc::new(Self { compute, down, up, codes: stream()?, beside: stream()?, late, caught_up }))
    }

    pub fn context(&self) -> &Arc<Context> {
        self.compute.context()
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
