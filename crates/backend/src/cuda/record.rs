//! Passes that are recorded once and replayed: CUDA graphs. The first time a pass is enqueued directly, since libraries set themselves up
//! at their first call; the second time it is recorded; from then on it is one call. A pass that the driver does not record is enqueued
//! directly each time, which the log says once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use cudarc::driver::sys;

use super::driver::context::launches_of_graph;
use super::driver::status::driver;
use super::driver::stream::Stream;
use super::driver::switches::switches;
use super::shared::Shared;
use crate::Error;

/// What enqueues a pass.
type Work<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// The state of each pass, by its key.
#[derive(Default)]
pub struct Records {
    passes: RefCell<HashMap<u64, Record>>,
    /// The log has been told of a pass that is not recorded.
    told: Cell<bool>,
    notes: RefCell<Vec<String>>,
}

enum Record {
    /// Enqueued once; `Shared::moved` at that time.
    Seen(u64),
    /// Recorded.
    Ready(Recorded, u64),
    /// Something in it cannot be recorded.
    Never,
}

/// What recording gave.
pub enum Recording {
    /// To be replayed.
    Done(Recorded),
    /// Nothing was done: the driver does not record it, and says why.
    Refused(String),
}

/// An executable graph, and the launches in it.
pub struct Recorded {
    graph: sys::CUgraphExec,
    launches: u64,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: made by `instantiate`; the driver lets a run under way finish.
        let _ = unsafe { sys::cuGraphExecDestroy(self.graph) };
    }
}

/// A graph as it was captured.
struct Captured(sys::CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: made by `end`; what became of it is a copy.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

impl Records {
    /// Does the work of the pass of this key, or replays what it did; `name` is for the log.
    pub fn run(&self, shared: &Shared, name: &str, key: u64, work: Work<'_>) -> Result<(), Error> {
        if switches().no_graph {
            return work();
        }
        let moved = shared.moved.get();
        let known = self.passes.borrow_mut().remove(&key);
        let next = match known {
            // memory has moved since: the recording would use the old addresses
            Some(Record::Ready(_, then) | Record::Seen(then)) if then != moved => {
                work()?;
                Record::Seen(shared.moved.get())
            }
            None => {
                work()?;
                Record::Seen(shared.moved.get())
            }
            Some(Record::Ready(recorded, then)) => {
                recorded.replay(shared)?;
                Record::Ready(recorded, then)
            }
            Some(Record::Seen(_)) => match record(shared, work)? {
                Recording::Done(recorded) => {
                    recorded.replay(shared)?;
                    Record::Ready(recorded, moved)
                }
                Recording::Refused(why) => {
                    self.tell(name, &why);
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

    /// Has the log say, once, that a pass is not recorded.
    fn tell(&self, name: &str, why: &str) {
        if !self.told.replace(true) {
            self.notes.borrow_mut().push(format!(
                "note: {name} is not replayed as a CUDA graph but enqueued call by call, which is slower: {why}; please report this with \
                 `trireme doctor`'s output (other passes for which it is so are not named)"
            ));
        }
    }

    /// Lines for the log since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        self.notes.take()
    }
}

impl Recorded {
    /// Enqueues it.
    pub fn replay(&self, shared: &Shared) -> Result<(), Error> {
        shared.start()?;
        shared.context().launches.add(self.launches);
        // SAFETY: graph and stream live; the memory that it uses has not moved since it was recorded.
        driver(unsafe { sys::cuGraphLaunch(self.graph, shared.stream().handle()) }, "cuGraphLaunch", "a recorded pass")
    }
}

/// Records what `work` enqueues. An error of its own ends the recording and is returned.
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
        // a library's call that cannot be recorded; one that is wrong in itself is so again when the work is enqueued directly
        (Err(error @ Error::Foreign { .. }), Err(ended)) => {
            let ended = words(ended)?;
            Ok(Recording::Refused(format!("{}; {ended}", words(error)?)))
        }
        (Err(error), _) => Err(error),
    }
}

/// The words of a call that was refused; the error itself where there is more to it.
fn words(error: Error) -> Result<String, Error> {
    match error {
        Error::Foreign { library, call, op, status } => Ok(format!("{library}: {call} for {op} answered {status}")),
        error => Err(error),
    }
}

fn begin(stream: &Stream) -> Result<(), Error> {
    // other threads go on copying meanwhile
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream lives, and its context is bound.
    driver(unsafe { sys::cuStreamBeginCapture_v2(stream.handle(), mode) }, "cuStreamBeginCapture_v2", "a pass")
}

fn end(stream: &Stream) -> Result<Captured, Error> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is being recorded by this thread, the pointer valid for the call.
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
    // SAFETY: as above, the pointer valid for the call.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph, captured.0, 0) };
    driver(made, "cuGraphInstantiateWithFlags", "a recorded pass")?;
    Ok(Recorded { graph, launches })
}
