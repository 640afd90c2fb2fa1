//! Queues of work on the card, and the events by which one waits for another.

use std::sync::Arc;

use cudarc::driver::sys;

use crate::backend::Error;
use crate::backend::cuda::driver::context::Context;
use crate::backend::cuda::driver::status::driver;

/// A queue of its own, which nothing else on the card waits for.
pub struct Stream {
    handle: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: streams may be used from any thread with their context bound, which every method sees to.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Stream {}

impl Stream {
    /// An empty one.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is bound, the pointer valid for the call; destroyed in `drop`.
        driver(unsafe { sys::cuStreamCreate(&mut handle, flags) }, "cuStreamCreate", "a queue")?;
        Ok(Self { handle, context: context.clone() })
    }

    /// For calls of other libraries.
    pub fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all that was enqueued is done.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        driver(unsafe { sys::cuStreamSynchronize(self.handle) }, "cuStreamSynchronize", "the work before")
    }

    /// What is enqueued from here on starts after the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: both live; an event that was never recorded is over.
        driver(unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) }, "cuStreamWaitEvent", "another queue")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // at the end of the process the driver may be gone already
        if self.context.bind().is_ok() {
            // SAFETY: created by `new`; the driver lets what is enqueued finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

/// A point in a queue.
pub struct Event {
    handle: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: events may be used from any thread with their context bound.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Event {}

impl Event {
    /// Not recorded yet, which counts as over.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is bound, the pointer valid for the call; destroyed in `drop`.
        driver(unsafe { sys::cuEventCreate(&mut handle, flags) }, "cuEventCreate", "an event")?;
        Ok(Self { handle, context: context.clone() })
    }

    /// Marks what is enqueued on the stream by now. While the stream is recorded (`recording`), the mark becomes a part of what
    /// is replayed.
    pub fn record(&self, stream: &Stream, recording: bool) -> Result<(), Error> {
        self.context.bind()?;
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        let flags = if recording { external } else { 0 };
        // SAFETY: both live.
        driver(
            unsafe { sys::cuEventRecordWithFlags(self.handle, stream.handle, flags) },
            "cuEventRecordWithFlags",
            "an event",
        )
    }

    /// Waits until the stream has got there.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: it lives.
        driver(unsafe { sys::cuEventSynchronize(self.handle) }, "cuEventSynchronize", "an event")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created by `new`; the driver keeps what still needs it.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
