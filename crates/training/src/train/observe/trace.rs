//! `--trace`: what every rank did when, as one file of Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
//!
//! Format: "Trace Event Format", complete events (`ph: X`): `ts` and `dur` in microseconds, `pid` the rank, `tid` the thread. Clocks
//! start at a barrier. Memory is bounded: layers, data and sums are recorded in the first steps only, and at most `MOST` spans.

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

/// Spans of one rank at most: some 20 MB of text.
const MOST: usize = 200_000;

/// How a file begins.
const HEAD: &str = "{\"displayTimeUnit\":";

/// A trace: no other file is written over by one.
const TRACE: Content = Content { name: "a trace", begins: |head| head.starts_with(HEAD.as_bytes()) };

/// Refuses a file that cannot be written, and one that the run reads; for the rank that writes it, before the first step. In `out`, which
/// the run makes, there is none yet.
pub fn check(path: Option<&Path>, recipe: &Path, out: &Path) -> Result<(), Error> {
    let path = path.filter(|path| out.exists() || folder_of(path) != out);
    path.map_or(Ok(()), |path| overwrite::check(path, &TRACE, &[recipe])).map_err(Error::Usage)
}

/// The thread that a span belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The compute thread.
    Compute,
    /// The thread that owns MPI, where gradients travel beside backward.
    Mpi,
    /// A loader thread, by its number.
    Loader(usize),
}

impl Lane {
    /// Its number in the file.
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

/// A recorder, or none. Clones record into the same.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Mutex<Recorder>>>);

struct Recorder {
    zero: Instant,
    /// Steps recorded in all their parts, and steps done.
    steps: u64,
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
    /// Records from now on, the first `steps` steps in all their parts; collective, so that all ranks' clocks start together.
    pub fn start(comm: &Comm, steps: u64) -> Result<Self, Error> {
        comm.run("barrier before the trace", World::barrier)?;
        let recorder = Recorder { zero: Instant::now(), steps, done: 0, spans: Vec::new(), dropped: 0 };
        Ok(Self(Some(Arc::new(Mutex::new(recorder)))))
    }

    fn recorder(&self) -> Option<MutexGuard<'_, Recorder>> {
        self.0.as_ref().map(|r| r.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether parts of steps are still recorded.
    pub fn follows_steps(&self) -> bool {
        self.recorder().is_some_and(|r| r.done < r.steps)
    }

    /// So many steps are done.
    pub fn done(&self, steps: u64) {
        self.recorder().iter_mut().for_each(|r| r.done = steps);
    }

    /// Records a part of a step, if parts are still recorded.
    pub fn part(&self, kind: &'static str, name: impl Into<String>, lane: Lane, start: Instant, took: Duration) {
        if self.follows_steps() {
            self.span(kind, name, lane, start, took);
        }
    }

    /// Records a span.
    pub fn span(&self, kind: &'static str, name: impl Into<String>, lane: Lane, start: Instant, took: Duration) {
        let Some(mut recorder) = self.recorder() else { return };
        if recorder.spans.len() == MOST {
            recorder.dropped += 1;
            return;
        }
        let start = start.saturating_duration_since(recorder.zero);
        recorder.spans.push(Span { name: name.into(), kind, lane, start, took });
    }

    /// Gathers all ranks' spans and has rank 0 write them to `path`, which warns where it cannot; collective.
    pub fn write(&self, comm: &Comm, world: &WorldInfo, path: &Path, report: &mut Reporter) -> Result<(), Error> {
        let Some(recorder) = self.recorder() else { return Ok(()) };
        let own = events(world.rank, &world.host, &recorder.spans);
        if let Some(all) = comm.gather("gathering of the trace", &own)? {
            let text = format!("{HEAD}\"ms\",\"traceEvents\":[\n{}\n]}}\n", all.join(",\n"));
            if let Err(error) = formats::checkpoint::write_text(path, &text) {
                report.note(&format!("warning: the run is done, its trace is not written: {error}"));
                return Ok(());
            }
            let dropped = match recorder.dropped {
                0 => String::new(),
                n => format!(" ({n} more spans of rank 0 found no room)"),
            };
            report.note(&format!("trace: {}{dropped}; open it in ui.perfetto.dev", path.display()));
        }
        Ok(())
    }
}

/// One rank's events, a line each, with commas between them. A thread that did nothing has no lane.
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
