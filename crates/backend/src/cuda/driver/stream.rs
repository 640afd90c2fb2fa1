//! Streams of work on the GPU, the events by which one waits for another, and the four streams of a backend.

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

/// The queues of a backend: one computes; copies to the host, copies to the GPU and codes each go beside it in one of their own, so that
/// none of them waits behind another.
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
