//! Passes that are recorded once and replayed: CUDA graphs. The first time a pass is enqueued directly, since libraries set themselves up
//! at their first call; the second time it is recorded; from then on it is one call.

use std::cell::RefCell;
use std::collections::HashMap;

use cudarc::driver::sys;

use super::driver::status::driver;
use super::driver::switches::switches;
use super::shared::Shared;
use crate::backend::Error;

/// The state of each pass, by its key.
#[derive(Default)]
pub struct Records(RefCell<HashMap<u64, Record>>);

enum Record {
    /// Enqueued once; `Shared::moved` at that time.
    Seen(u64),
    /// Recorded.
    Ready(Recorded, u64),
    /// Something in it cannot be recorded.
    Never,
}

/// An executable graph.
struct Recorded(sys::CUgraphExec);

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: made by `finish`; the driver lets a run under way finish.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Records {
    /// Does `work`, or replays what it did.
    pub fn run<E: From<Error>>(
        &self,
        shared: &Shared,
        key: u64,
        work: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if switches().no_graph {
            return work();
        }
        let moved = shared.moved.get();
        let known = self.0.borrow_mut().remove(&key);
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
                replay(shared, &recorded)?;
                Record::Ready(recorded, then)
            }
            Some(Record::Seen(_)) => match record(shared, work)? {
                Some(recorded) => {
                    replay(shared, &recorded)?;
                    Record::Ready(recorded, moved)
                }
                // nothing was done yet
                None => {
                    work()?;
                    Record::Never
                }
            },
            Some(Record::Never) => {
                work()?;
                Record::Never
            }
        };
        self.0.borrow_mut().insert(key, next);
        Ok(())
    }
}

fn replay(shared: &Shared, recorded: &Recorded) -> Result<(), Error> {
    shared.start()?;
    // SAFETY: graph and stream live; the memory that it uses has not moved since it was recorded.
    driver(unsafe { sys::cuGraphLaunch(recorded.0, shared.stream().handle()) }, "cuGraphLaunch", "a recorded pass")
}

/// Records what `work` enqueues; none if the driver cannot.
fn record<E: From<Error>>(shared: &Shared, work: &mut dyn FnMut() -> Result<(), E>) -> Result<Option<Recorded>, E> {
    shared.start()?;
    let stream = shared.stream().handle();
    // other threads go on copying meanwhile
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream lives, and its context is bound.
    driver(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }, "cuStreamBeginCapture_v2", "a pass")?;
    shared.recording.set(true);
    let result = work();
    shared.recording.set(false);
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is being recorded by this thread, the pointer valid for the call.
    let ended = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
    if graph.is_null() || ended != sys::CUresult::CUDA_SUCCESS {
        // a call within it was not one that can be recorded
        return Ok(None);
    }
    let mut exec = std::ptr::null_mut();
    // SAFETY: the graph was just recorded; it is not needed once it is executable.
    let made = unsafe {
        let made = sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0);
        let _ = sys::cuGraphDestroy(graph);
        made
    };
    result?;
    driver(made, "cuGraphInstantiateWithFlags", "a recorded pass")?;
    Ok(Some(Recorded(exec)))
}
