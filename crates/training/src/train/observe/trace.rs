//! `--trace`: the timeline of every rank in one file of Chrome trace events, for Perfetto (ui.perfetto.dev) or
//! chrome://tracing.
//!
//! Format: "Trace Event Format", complete events (`ph: X`). `ts` and `dur` are in microseconds, `pid` is the rank and
//! `tid` the thread. The clocks of all ranks start at a barrier. The memory is limited: layers, data and sums are
//! recorded only in the first steps, and each rank records at most `MOST` spans.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comm::{Comm, World, WorldInfo};
use loaders::folder_of;
use loaders::overwrite::{self, Content};
use report::Reporter;
use serde_json::json;

use crate::error::Error;

/// Maximum number of spans per rank. They need about 20 MB of text.
const MOST: usize = 200_000;

/// The first bytes of a trace file.
const HEAD: &str = "{\"displayTimeUnit\":";

/// The kind of file that a trace may overwrite.
const TRACE: Content = Content { name: "a trace", begins: |head| head.starts_with(HEAD.as_bytes()) };

/// Checks that the trace can be written and does not overwrite a file that the run reads. Rank 0, which writes the
/// trace, calls this before the first step. If the trace is in `out` and that directory does not exist yet, there is
/// nothing to check.
pub fn check(path: Option<&Path>, recipe: &Path, out: &Path) -> Result<(), Error> {
    let path = path.filter(|path| out.exists() || folder_of(path) != out);
    path.map_or(Ok(()), |path| overwrite::check(path, &TRACE, &[recipe])).map_err(Error::Usage)
}

/// The thread that a span belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Compute,
    /// The thread that owns MPI, if sums run during backward.
    Mpi,
    /// A loader thread with its index.
    Loader(usize),
}

impl Lane {
    /// Returns the number that stands for the lane in the file.
    fn tid(self) -> usize {
        match self {
            Lane::Compute => 0,
            Lane::Mpi => 1,
            Lane::Loader(thread) => 2 + thread,
        }
    }

    fn name(self) -> String {
        match self {
            Lane::Compute => "compute".into(),
            Lane::Mpi => "mpi".into(),
            Lane::Loader(thread) => format!("loader {thread}"),
        }
    }
}

/// A recorder of spans. Does nothing if `--trace` is not given. Clones share the same recorder.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Mutex<Recorder>>>);

struct Recorder {
    zero: Instant,
    /// Number of steps to record in detail.
    steps: u64,
    /// Steps since the recording started.
    done: u64,
    spans: Vec<Span>,
    dropped: u64,
}

struct Span {
    name: String,
    kind: &'static str,
    lane: Lane,
    start: Duration,
    took: Duration,
}

impl Trace {
    /// Starts recording. The first `steps` steps are recorded in detail. Collective, so that the clocks of all ranks
    /// start together.
    pub fn start(comm: &Comm, steps: u64) -> Result<Self, Error> {
        comm.run("barrier before the trace", World::barrier)?;
        let recorder = Recorder { zero: Instant::now(), steps, done: 0, spans: Vec::new(), dropped: 0 };
        Ok(Self(Some(Arc::new(Mutex::new(recorder)))))
    }

    fn recorder(&self) -> Option<MutexGuard<'_, Recorder>> {
        self.0.as_ref().map(|r| r.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn follows_steps(&self) -> bool {
        self.recorder().is_some_and(|r| r.done < r.steps)
    }

    pub fn step_done(&self) {
        self.recorder().iter_mut().for_each(|r| r.done += 1);
    }

    /// Records a part of a step. Does nothing if the detailed steps are over.
    pub fn part(&self, kind: &'static str, name: impl Into<String>, lane: Lane, start: Instant, took: Duration) {
        if self.follows_steps() {
            self.span(kind, name, lane, start, took);
        }
    }

    pub fn span(&self, kind: &'static str, name: impl Into<String>, lane: Lane, start: Instant, took: Duration) {
        let Some(mut recorder) = self.recorder() else { return };
        if recorder.spans.len() == MOST {
            recorder.dropped += 1;
            return;
        }
        let start = start.saturating_duration_since(recorder.zero);
        recorder.spans.push(Span { name: name.into(), kind, lane, start, took });
    }

    /// Gathers the spans of all ranks. Rank 0 writes them to `path`, or prints a warning if that fails. Collective.
    pub fn write(&self, comm: &Comm, world: &WorldInfo, path: &Path, report: &mut Reporter) -> Result<(), Error> {
        let Some(recorder) = self.recorder() else { return Ok(()) };
        let own = events(world.rank, &world.host, &recorder.spans);
        if let Some(all) = comm.gather("gathering of the trace", &own)? {
            let text = format!("{HEAD}\"ms\",\"traceEvents\":[\n{}\n]}}\n", all.join(",\n"));
            if let Err(error) = formats::checkpoint::write_text(path, &text) {
                report.note(&format!("warning: the trace was not written: {error}"));
                return Ok(());
            }
            let dropped = match recorder.dropped {
                0 => String::new(),
                n => format!(" (there was no room for {n} more spans of rank 0)"),
            };
            report.note(&format!("trace: {}{dropped}; open it in ui.perfetto.dev", path.display()));
        }
        Ok(())
    }
}

/// Returns the events of one rank, one per line and separated by commas. A thread without spans has no lane.
fn events(rank: usize, host: &str, spans: &[Span]) -> String {
    let name = |what: &str, tid: usize, name: String| json!({"ph": "M", "name": what, "pid": rank, "tid": tid, "args": {"name": name}});
    let mut lines = vec![name("process_name", 0, format!("rank {rank} on {host}")).to_string()];
    let lanes: BTreeSet<Lane> = spans.iter().map(|span| span.lane).collect();
    lines.extend(lanes.into_iter().map(|lane| name("thread_name", lane.tid(), lane.name()).to_string()));
    let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
    lines.extend(spans.iter().map(|s| {
        let (ts, dur) = (micros(s.start), micros(s.took));
        json!({"ph": "X", "name": s.name, "cat": s.kind, "pid": rank, "tid": s.lane.tid(), "ts": ts, "dur": dur})
            .to_string()
    }));
    lines.join(",\n")
}
