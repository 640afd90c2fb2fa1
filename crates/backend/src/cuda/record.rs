//! Captures passes as CUDA graphs and replays them. The first time, a pass is enqueued directly, because libraries
//! initialise at their first call. The second time, it is captured. From then on, a single call replays its graph. If
//! memory moves, the pass starts over. If the driver cannot capture a pass, the pass is enqueued directly each time,
//! and the log reports the first such pass.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use cudarc::driver::sys;

use super::driver::context::launches_of_graph;
use super::driver::status::driver;
use super::driver::stream::Stream;
use super::driver::switches::switches;
use super::shared::Shared;
use crate::Error;

/// A function that enqueues a pass.
type Work<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// The state of each pass, by its key.
#[derive(Default)]
pub struct Records {
    passes: RefCell<HashMap<u64, Record>>,
    /// True if the log already has a note about a pass that cannot be captured.
    has_reported: Cell<bool>,
    notes: RefCell<Vec<String>>,
}

enum Record {
    /// Enqueued directly, once. `moved` is `Shared::moved` after that.
    EnqueuedOnce { moved: u64 },
    /// Captured. `moved` is `Shared::moved` at that time.
    Ready { recorded: Recorded, moved: u64 },
    /// The pass cannot be captured as a graph.
    Never,
}

/// The result of capturing a pass.
pub enum Recording {
    Done(Recorded),
    /// The driver cannot capture the pass, for this reason. Nothing was executed.
    Refused(String),
}

/// An executable graph and its number of launches.
pub struct Recorded {
    graph: sys::CUgraphExec,
    launches: u64,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: `instantiate` created it. The driver lets a current run finish.
        let _ = unsafe { sys::cuGraphExecDestroy(self.graph) };
    }
}

/// A captured graph, not executable yet.
struct Captured(sys::CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: `end` created it. The executable graph is a copy.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

impl Records {
    /// Enqueues the work of the pass with this key, or replays its graph. `name` is used in the log.
    pub fn run(&self, shared: &Shared, name: &str, key: u64, work: Work<'_>) -> Result<(), Error> {
        if switches().no_graph {
            return work();
        }
        let moved = shared.moved();
        // if memory has moved since then, the graph would use old addresses
        let valid = |record: &Record| match record {
            Record::EnqueuedOnce { moved: moved_before } | Record::Ready { moved: moved_before, .. } => {
                *moved_before == moved
            }
            Record::Never => true,
        };
        let known = self.passes.borrow_mut().remove(&key).filter(valid);
        let next = match known {
            None => {
                work()?;
                Record::EnqueuedOnce { moved: shared.moved() }
            }
            Some(Record::Ready { recorded, .. }) => {
                recorded.replay(shared)?;
                Record::Ready { recorded, moved }
            }
            Some(Record::EnqueuedOnce { .. }) => match record(shared, work)? {
                Recording::Done(recorded) => {
                    recorded.replay(shared)?;
                    Record::Ready { recorded, moved }
                }
                Recording::Refused(why) => {
                    self.report_once(name, &why);
                    work()?;
                    Record::Never
                }
            },
            Some(Record::Never) => {
                work()?;
                Record::Never
            }
        };
        self.passes.borrow_mut().insert(key, next);
        Ok(())
    }

    /// Adds a note to the log that a pass cannot be captured, if the log does not have such a note yet.
    fn report_once(&self, name: &str, why: &str) {
        if !self.has_reported.replace(true) {
            self.notes.borrow_mut().push(format!(
                "note: {name} is not replayed as a CUDA graph but enqueued call by call, which is slower: {why}; \
                 please report this with the output of `trireme doctor` (only the first such pass is reported)"
            ));
        }
    }

    /// Returns the new lines for the log.
    pub fn take_notes(&self) -> Vec<String> {
        self.notes.take()
    }
}

impl Recorded {
    pub fn replay(&self, shared: &Shared) -> Result<(), Error> {
        shared.start()?;
        shared.context().launches.add(self.launches);
        // SAFETY: graph and stream are alive. The memory that the graph uses has not moved since it was captured.
        driver(unsafe { sys::cuGraphLaunch(self.graph, shared.stream().handle()) }, "cuGraphLaunch", "a recorded pass")
    }
}

/// Captures the work that `work` enqueues. An error of `work` itself ends the capture and is returned.
pub fn record(shared: &Shared, work: Work<'_>) -> Result<Recording, Error> {
    shared.start()?;
    if let Err(error) = begin(shared.stream()) {
        return Ok(Recording::Refused(words(error)?));
    }
    shared.record(true);
    let worked = work();
    shared.record(false);
    match (worked, end(shared.stream())) {
        (Ok(()), Ok(captured)) => match instantiate(&captured) {
            Ok(recorded) => Ok(Recording::Done(recorded)),
            Err(error) => Ok(Recording::Refused(words(error)?)),
        },
        (Ok(()), Err(ended)) => Ok(Recording::Refused(words(ended)?)),
        // A library call that cannot be captured. If the call is wrong for another reason, it fails again when the pass
        // is enqueued directly.
        (Err(error @ Error::Foreign { .. }), Err(ended)) => {
            let ended = words(ended)?;
            Ok(Recording::Refused(format!("{}; {ended}", words(error)?)))
        }
        (Err(error), _) => Err(error),
    }
}

/// Returns the text of a failed library call. Returns all other errors as they are.
fn words(error: Error) -> Result<String, Error> {
    match error {
        Error::Foreign { library, call, op, status } => Ok(format!("{library}: {call} for {op} returned {status}")),
        error => Err(error),
    }
}

fn begin(stream: &Stream) -> Result<(), Error> {
    // other threads may continue to copy
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive, and its context is bound.
    driver(unsafe { sys::cuStreamBeginCapture_v2(stream.handle(), mode) }, "cuStreamBeginCapture_v2", "a pass")
}

fn end(stream: &Stream) -> Result<Captured, Error> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: this thread is capturing the stream, and the pointer is valid for the call.
    let ended = unsafe { sys::cuStreamEndCapture(stream.handle(), &mut graph) };
    let captured = (!graph.is_null()).then(|| Captured(graph));
    driver(ended, "cuStreamEndCapture", "a pass")?;
    captured.ok_or(Error::Foreign {
        library: "CUDA driver",
        call: "cuStreamEndCapture",
        op: "a pass".into(),
        status: "no graph".into(),
    })
}

fn instantiate(captured: &Captured) -> Result<Recorded, Error> {
    // SAFETY: the graph was just captured.
    let launches = unsafe { launches_of_graph(captured.0) }?;
    let mut graph = std::ptr::null_mut();
    // SAFETY: the graph was just captured, and the pointer is valid for the call.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph, captured.0, 0) };
    driver(made, "cuGraphInstantiateWithFlags", "a recorded pass")?;
    Ok(Recorded { graph, launches })
}
