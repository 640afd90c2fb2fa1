//! Passes the events of a run to sinks. Defines the reporter, the trait for sinks, and the verbosity.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_tools::Thumbnail;

use super::evaluation_file::EvaluationFile;
use super::event::Event;
use super::jsonl::{Jsonl, LogFile};
use super::plain::Plain;
use super::terminal::Terminal;

/// A hint about a bottleneck of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub text: String,
    /// True if the lost time is large enough that the user should act.
    pub pressing: bool,
}

/// Passes each event to every sink.
#[derive(Default)]
pub struct Reporter {
    sinks: Vec<Box<dyn Sink>>,
}

impl Reporter {
    /// Creates a reporter without sinks, for all ranks except rank 0.
    pub fn silent() -> Self {
        Reporter::default()
    }

    /// Creates the reporter of rank 0. It writes to the screen, to `out/run.log` with full detail, and to `out/metrics.jsonl` with a step
    /// line every `every` steps. With `goes_on`, keeps the lines of an existing metrics.jsonl. run.log always keeps its lines. `started` is
    /// the start time of the process, and `apart` the time between progress lines.
    pub fn new(
        out: &Path,
        every: u64,
        goes_on: bool,
        started: Instant,
        verbosity: Verbosity,
        apart: Option<Duration>,
    ) -> Result<Self, Error> {
        let path = out.join("metrics.jsonl");
        let metrics =
            if goes_on { Jsonl::append(&path, every, started)? } else { Jsonl::create(&path, every, started)? };
        let path = out.join(LOG);
        let log = LogFile::append(&path).map_err(|source| Error { path, source })?;
        Ok(Reporter::default()
            .with(screen(verbosity, apart))
            .with(Box::new(metrics))
            .with(Box::new(Plain::log(log).apart(apart))))
    }

    pub fn with(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Calls `act` for every sink. If an optional sink fails, it is removed with a warning. An error of any other sink is returned.
    fn each(&mut self, act: impl Fn(&mut dyn Sink) -> Result<(), Error>) -> Result<(), Error> {
        let mut lost = Vec::new();
        let mut at = 0;
        while let Some(sink) = self.sinks.get_mut(at) {
            match act(sink.as_mut()) {
                Err(error) if sink.is_optional() => {
                    self.sinks.remove(at);
                    lost.push(error);
                }
                other => {
                    other?;
                    at += 1;
                }
            }
        }
        lost.iter().for_each(|error| self.note(&format!("warning: {error}. The run continues without this file")));
        Ok(())
    }

    /// Passes one event to all sinks. Returns the first error of a sink that is not optional.
    pub fn event(&mut self, event: impl Into<Event>) -> Result<(), Error> {
        if self.sinks.is_empty() {
            return Ok(());
        }
        let event = event.into();
        self.each(|sink| sink.event(&event))
    }

    /// Passes the details of an evaluation to all sinks.
    pub fn evaluation(&mut self, evaluation: &EvaluationFile) -> Result<(), Error> {
        self.each(|sink| sink.evaluation(evaluation))
    }

    /// Passes training images after the transforms to all sinks.
    pub fn pictures(&mut self, step: u64, pictures: &[Thumbnail]) -> Result<(), Error> {
        self.each(|sink| sink.pictures(step, pictures))
    }

    /// Calls [`Sink::sync`] of all sinks.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.each(|sink| sink.sync())
    }

    /// Passes one line of text to all sinks.
    pub fn note(&mut self, text: &str) {
        self.sinks.iter_mut().for_each(|sink| sink.note(text));
    }

    /// Reports advice as a note if it is pressing, otherwise as a fact.
    pub fn advice(&mut self, advice: &Advice) {
        if advice.pressing { self.note(&advice.text) } else { self.fact(&advice.text) }
    }

    /// Passes lines of text to all sinks. They are shown only with full verbosity.
    pub fn fact(&mut self, text: &str) {
        self.sinks.iter_mut().for_each(|sink| sink.fact(text));
    }
}

/// Creates the sink for stderr: a status block on a capable terminal, otherwise plain lines.
fn screen(verbosity: Verbosity, apart: Option<Duration>) -> Box<dyn Sink> {
    let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if terminal {
        Box::new(Terminal::new(verbosity))
    } else {
        Box::new(Plain::new(std::io::stderr(), verbosity).apart(apart))
    }
}

/// A metrics file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; {}", path.display(), loaders::write_advice(source))]
pub struct Error {
    pub path: PathBuf,
    pub source: std::io::Error,
}

/// A destination of events, such as a file or the terminal.
pub trait Sink {
    fn event(&mut self, event: &Event) -> Result<(), Error>;

    /// Handles the details of an evaluation. Some evaluations are skipped.
    fn evaluation(&mut self, _evaluation: &EvaluationFile) -> Result<(), Error> {
        Ok(())
    }

    /// Handles training images as they are after the transforms. They were loaded after `step` steps.
    fn pictures(&mut self, _step: u64, _pictures: &[Thumbnail]) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until all events so far are on disk. Sinks that a resumed run does not read do nothing.
    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns true if the run can continue without this sink. A failure is then only a warning.
    fn is_optional(&self) -> bool {
        false
    }

    /// Handles one line of text, such as a warning. Sinks for metrics ignore it.
    fn note(&mut self, _text: &str) {}

    /// Handles lines of text about the environment of the run and where its time goes. They are shown only with full verbosity.
    fn fact(&mut self, _text: &str) {}
}

pub const LOG: &str = "run.log";

/// How much a run prints. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    Quiet,
    /// Also progress, scores, and hints about settings.
    #[default]
    Normal,
    /// Also all facts: ranks, devices, libraries, memory, waits, files.
    Verbose,
}

impl Verbosity {
    /// Returns true if a note is shown at this verbosity. Quiet runs show only warnings.
    pub(super) fn shows(self, text: &str) -> bool {
        self > Verbosity::Quiet || text.starts_with("warning")
    }

    pub(super) fn shows_facts(self) -> bool {
        self == Verbosity::Verbose
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checkpoint;
    use std::cell::RefCell;
    use std::rc::Rc;
    use support::mentions;

    struct Count(Rc<RefCell<Vec<String>>>);

    impl Sink for Count {
        fn event(&mut self, event: &Event) -> Result<(), Error> {
            let Event::Checkpoint(checkpoint) = event else { panic!("{event:?}") };
            self.0.borrow_mut().push(format!("event at {}", checkpoint.step));
            Ok(())
        }

        fn note(&mut self, text: &str) {
            self.0.borrow_mut().push(text.to_string());
        }

        fn sync(&mut self) -> Result<(), Error> {
            self.0.borrow_mut().push("sync".into());
            Ok(())
        }
    }

    #[test]
    fn every_sink_gets_every_event_and_note() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut reporter = Reporter::silent().with(Box::new(Count(seen.clone()))).with(Box::new(Count(seen.clone())));
        reporter.event(Checkpoint { step: 7, epoch: 1, path: "a".into(), ..Checkpoint::default() }).unwrap();
        reporter.note("hello");
        reporter.sync().unwrap();
        assert_eq!(*seen.borrow(), ["event at 7", "event at 7", "hello", "hello", "sync", "sync"]);
        Reporter::silent().event(Checkpoint { step: 7, epoch: 1, path: "a".into(), ..Checkpoint::default() }).unwrap();
    }

    struct Optional;

    impl Sink for Optional {
        fn event(&mut self, _: &Event) -> Result<(), Error> {
            Err(Error { path: "events".into(), source: std::io::ErrorKind::StorageFull.into() })
        }

        fn is_optional(&self) -> bool {
            true
        }
    }

    #[test]
    fn an_optional_sink_that_fails_is_dropped_with_a_warning() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut reporter = Reporter::silent().with(Box::new(Optional)).with(Box::new(Count(seen.clone())));
        for _ in 0..2 {
            reporter.event(Checkpoint { step: 7, ..Checkpoint::default() }).unwrap();
        }
        let seen = seen.borrow();
        assert_eq!((seen.len(), &*seen[0], &*seen[2]), (3, "event at 7", "event at 7"));
        mentions(&seen[1], &["warning: ", "events: ", "continues without"]);
    }

    #[test]
    fn the_error_of_a_sink_is_returned() {
        let path = Path::new("/dev/full");
        let file = LogFile::from_file(std::fs::File::options().write(true).open(path).unwrap(), path);
        let full = Jsonl::from_file(file, 1, Instant::now());
        let mut reporter = Reporter::silent().with(Box::new(full));
        let error = reporter.event(Checkpoint { step: 7, ..Checkpoint::default() }).unwrap_err();
        assert_eq!((error.path.as_path(), error.source.kind()), (path, std::io::ErrorKind::StorageFull));
    }
}
