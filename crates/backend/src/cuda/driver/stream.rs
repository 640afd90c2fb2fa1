//! Queues of work on the GPU, and the events by which one waits for another.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{result, sys};

use super::context::Context;
use super::lookup::{Library, loaded};
use super::raw::Raw;
use super::status::{checked, driver};
use super::switches::switches;
use crate::Error;

/// A queue of its own, for which nothing else on the GPU waits.
pub struct Stream {
    handle: Raw<sys::CUstream_st>,
    context: Arc<Context>,
}

impl Stream {
    /// Without work.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.bind()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let handle = Raw(checked(created, "cuStreamCreate", "a stream")?);
        Ok(Self { handle, context: context.clone() })
    }

    /// For calls of other libraries.
    pub fn handle(&self) -> sys::CUstream {
        self.handle.0
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all enqueued work is done.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        driver(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "cuStreamSynchronize", "the work before")
    }

    /// The GPU's own failure, where that is why another library's call failed. Waits for nothing: sums over ranks may be under way that
    /// never end, since another rank is gone.
    pub fn lost(&self, call: &'static str, op: &str) -> Option<Error> {
        let asked = self.context.bind().and_then(|()| {
            // SAFETY: the stream lives as long as `self`.
            driver(unsafe { sys::cuStreamQuery(self.handle.0) }, call, op)
        });
        asked.err().and_then(Error::fatal)
    }

    /// After work was enqueued: waits for it where TRIREME_CUDA_SYNC=1 says so; the error names the work.
    pub fn settle(&self, work: &str) -> Result<(), Error> {
        if !switches().sync {
            return Ok(());
        }
        // SAFETY: the stream lives as long as `self`, and whoever enqueued has bound its context.
        driver(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "cuStreamSynchronize", work)
    }

    /// What is enqueued afterwards starts after the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: both live; an event that was never recorded is over.
        driver(
            unsafe { sys::cuStreamWaitEvent(self.handle.0, event.handle.0, 0) },
            "cuStreamWaitEvent",
            "another queue",
        )
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // at the end of the process the driver may be gone already
        if self.context.bind().is_ok() {
            // SAFETY: created by `new`; the driver lets what is enqueued finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle.0) };
        }
    }
}

type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// The function that every driver has. cudarc takes its second version, which came with CUDA 12.8, and panics below that.
fn elapsed() -> Result<Elapsed, Error> {
    let library = loaded(Library::Driver)?;
    // SAFETY: the function has this type in every version of the driver.
    unsafe { library.find(c"cuEventElapsedTime") }.ok_or_else(|| {
        let why = format!("{} lacks cuEventElapsedTime; update the driver, or use --device cpu", library.words());
        Error::Absent { what: "CUDA".into(), why }
    })
}

/// A point in a queue.
pub struct Event {
    handle: Raw<sys::CUevent_st>,
    context: Arc<Context>,
}

impl Event {
    /// Not recorded yet, which counts as over.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        Self::create(context, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING)
    }

    /// The same, and it notes the time at which the GPU gets there.
    pub fn timed(context: &Arc<Context>) -> Result<Self, Error> {
        Self::create(context, sys::CUevent_flags_enum::CU_EVENT_DEFAULT)
    }

    fn create(context: &Arc<Context>, flags: sys::CUevent_flags_enum) -> Result<Self, Error> {
        context.bind()?;
        let created = result::event::create(flags);
        let handle = Raw(checked(created, "cuEventCreate", "an event")?);
        Ok(Self { handle, context: context.clone() })
    }

    /// Marks what is enqueued on the stream by now. While the stream is recorded (`recording`), the mark becomes a part of the
    /// recording.
    pub fn record(&self, stream: &Stream, recording: bool) -> Result<(), Error> {
        self.context.bind()?;
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        let flags = if recording { external } else { 0 };
        // SAFETY: both live.
        driver(
            unsafe { sys::cuEventRecordWithFlags(self.handle.0, stream.handle.0, flags) },
            "cuEventRecordWithFlags",
            "an event",
        )
    }

    /// Waits until the stream has reached it.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: it lives.
        driver(unsafe { sys::cuEventSynchronize(self.handle.0) }, "cuEventSynchronize", "an event")
    }

    /// Time on the GPU between two events with time that the GPU has passed; the clock ticks about twice a microsecond.
    pub fn time_until(&self, later: &Event) -> Result<Duration, Error> {
        self.context.bind()?;
        let (elapsed, mut milliseconds) = (elapsed()?, 0.0);
        // SAFETY: both live, the pointer is valid for the call.
        let status = unsafe { elapsed(&mut milliseconds, self.handle.0, later.handle.0) };
        driver(status, "cuEventElapsedTime", "an event")?;
        Ok(Duration::from_secs_f64((f64::from(milliseconds) / 1e3).max(0.0)))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created by `new`; the driver keeps what still needs it.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle.0) };
        }
    }
}
