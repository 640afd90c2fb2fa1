//! Streams of work on the GPU, events that make a stream wait for another, and the streams of a backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cudarc::driver::{result, sys};

use super::context::{Context, Raw};
use super::load::{Library, loaded};
use super::status::{checked, driver};
use super::switches::switches;
use crate::Error;

/// A stream that is independent of the default stream.
pub struct Stream {
    handle: Raw<sys::CUstream_st>,
    context: Arc<Context>,
}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.bind()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let handle = Raw(checked(created, "cuStreamCreate", "a stream")?);
        Ok(Self { handle, context: context.clone() })
    }

    /// Creates a stream with the highest priority. Its kernels start first.
    pub fn urgent(context: &Arc<Context>) -> Result<Self, Error> {
        context.bind()?;
        let (mut least, mut greatest, mut stream) = (0, 0, std::ptr::null_mut());
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is bound, and the pointers are valid for the calls.
        unsafe {
            let status = sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest);
            driver(status, "cuCtxGetStreamPriorityRange", "a stream")?;
            let status = sys::cuStreamCreateWithPriority(&mut stream, flags, greatest);
            driver(status, "cuStreamCreateWithPriority", "a stream")?;
        }
        Ok(Self { handle: Raw(stream), context: context.clone() })
    }

    pub fn handle(&self) -> sys::CUstream {
        self.handle.0
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all enqueued work is done.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        driver(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "cuStreamSynchronize", "the work before")
    }

    /// Returns true if all enqueued work is done. Does not wait.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.handle.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => driver(status, "cuStreamQuery", "the work before").map(|()| true),
        }
    }

    /// Returns the GPU's own error if it is the reason why a call of another library failed. Does not wait: the stream
    /// may have a sum over ranks that never ends, because another rank is gone.
    pub fn lost(&self, call: &'static str, op: &str) -> Option<Error> {
        let asked = self.context.bind().and_then(|()| {
            // SAFETY: the stream lives as long as `self`.
            driver(unsafe { sys::cuStreamQuery(self.handle.0) }, call, op)
        });
        asked.err().and_then(Error::fatal)
    }

    /// Waits for the enqueued work if TRIREME_CUDA_SYNC=1. An error names the work.
    pub fn settle(&self, work: &str) -> Result<(), Error> {
        if !switches().sync {
            return Ok(());
        }
        // SAFETY: the stream lives as long as `self`, and the code that enqueued the work has bound its context.
        driver(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "cuStreamSynchronize", work)
    }

    /// Makes later work on this stream wait for the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: both are alive. An event that was never recorded counts as done.
        driver(
            unsafe { sys::cuStreamWaitEvent(self.handle.0, event.handle.0, 0) },
            "cuStreamWaitEvent",
            "another queue",
        )
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // at the end of the process the driver may be gone
        if self.context.bind().is_ok() {
            // SAFETY: `new` created it. The driver lets enqueued work finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle.0) };
        }
    }
}

type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Returns `cuEventElapsedTime`, which every driver has. cudarc would use the second version of the function, which
/// came with CUDA 12.8, and panic with older drivers.
fn elapsed() -> Result<Elapsed, Error> {
    let library = loaded(Library::Driver)?;
    // SAFETY: the function has this type in every version of the driver.
    unsafe { library.find(c"cuEventElapsedTime") }.ok_or_else(|| {
        let why = format!("{} lacks cuEventElapsedTime; update the driver, or use --device cpu", library.words());
        Error::Absent { what: "CUDA".into(), why }
    })
}

/// A point in a stream.
pub struct Event {
    handle: Raw<sys::CUevent_st>,
    context: Arc<Context>,
}

impl Event {
    /// Creates an event. Until it is recorded, it counts as done.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        Self::create(context, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// Creates an event that stores the time at which the GPU reaches it.
    pub fn timed(context: &Arc<Context>) -> Result<Self, Error> {
        Self::create(context, sys::CUevent_flags_enum::CU_EVENT_DEFAULT as u32)
    }

    fn create(context: &Arc<Context>, flags: u32) -> Result<Self, Error> {
        context.bind()?;
        // a thread that waits for the event sleeps
        let flags = flags | sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is bound, and the pointer is valid for the call.
        driver(unsafe { sys::cuEventCreate(&mut event, flags) }, "cuEventCreate", "an event")?;
        Ok(Self { handle: Raw(event), context: context.clone() })
    }

    /// Records the event after everything enqueued on the stream so far. If the stream is being captured (`recording`),
    /// the record becomes a part of the captured graph.
    pub fn record(&self, stream: &Stream, recording: bool) -> Result<(), Error> {
        self.context.bind()?;
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        let flags = if recording { external } else { 0 };
        // SAFETY: both are alive.
        driver(
            unsafe { sys::cuEventRecordWithFlags(self.handle.0, stream.handle.0, flags) },
            "cuEventRecordWithFlags",
            "an event",
        )
    }

    /// Waits until the stream has reached the event.
    pub fn wait(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        driver(unsafe { sys::cuEventSynchronize(self.handle.0) }, "cuEventSynchronize", "an event")
    }

    /// Returns the time on the GPU between two timed events that the GPU has passed. The clock ticks about twice per
    /// microsecond.
    pub fn time_until(&self, later: &Event) -> Result<Duration, Error> {
        self.context.bind()?;
        let (elapsed, mut milliseconds) = (elapsed()?, 0.0);
        // SAFETY: both are alive, and the pointer is valid for the call.
        let status = unsafe { elapsed(&mut milliseconds, self.handle.0, later.handle.0) };
        driver(status, "cuEventElapsedTime", "an event")?;
        Ok(Duration::from_secs_f64((f64::from(milliseconds) / 1e3).max(0.0)))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: `new` created it. The driver keeps it as long as enqueued work needs it.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle.0) };
        }
    }
}

/// A backend's streams. Computation, copies to the host, copies to the GPU, and gradient codecs have separate streams,
/// so that none of them waits for another.
pub struct Queues {
    pub compute: Stream,
    /// Copies from the GPU to the host.
    pub down: Stream,
    /// Copies from the host to the GPU.
    pub up: Stream,
    /// Encoding and decoding of gradients, and the copies of encoded gradients in both directions. They share a stream
    /// because each step needs the previous one.
    pub codes: Stream,
    /// A stream without work of its own. It waits for events of other streams, so that the next computation has to wait
    /// for only one event.
    event_stream: Stream,
    /// True if `event_stream` waits for an event that `compute` does not wait for yet.
    has_new_event: AtomicBool,
    caught_up: Event,
    /// The thread that enqueues computation.
    owner: ThreadId,
}

impl Queues {
    /// Creates the streams. Only the calling thread may enqueue computation.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let stream = || Stream::new(context);
        let (has_new_event, caught_up) = (AtomicBool::new(false), Event::new(context)?);
        let (compute, down, up) = (stream()?, stream()?, stream()?);
        let (codes, event_stream, owner) = (stream()?, stream()?, thread::current().id());
        Ok(Arc::new(Self { compute, down, up, codes, event_stream, has_new_event, caught_up, owner }))
    }

    pub fn context(&self) -> &Arc<Context> {
        self.compute.context()
    }

    /// Returns true if the calling thread is the one that enqueues computation.
    pub fn is_owner(&self) -> bool {
        thread::current().id() == self.owner
    }

    /// Makes a stream wait for all computation enqueued so far.
    pub fn after_all(&self, stream: &Stream) -> Result<(), Error> {
        let all = Event::new(self.context())?;
        all.record(&self.compute, false)?;
        stream.wait_for(&all)
    }

    /// Makes computation that is enqueued later wait for this event.
    pub fn compute_after(&self, event: &Event) -> Result<(), Error> {
        self.event_stream.wait_for(event)?;
        self.has_new_event.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the next computation wait for the events of [`Self::compute_after`]. Must be called before computation is
    /// enqueued.
    pub fn catch_up(&self) -> Result<(), Error> {
        if self.has_new_event.swap(false, Ordering::Acquire) {
            self.caught_up.record(&self.event_stream, false)?;
            self.compute.wait_for(&self.caught_up)?;
        }
        Ok(())
    }
}
