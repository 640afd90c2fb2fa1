//! Hands events to the sinks of rank 0.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;

use super::event::Event;
use super::jsonl::Jsonl;
use super::plain::Plain;
use super::sink::{Error, Sink};
use super::terminal::Terminal;

/// Hands each event to every sink.
#[derive(Default)]
pub struct Reporter {
    sinks: Vec<Box<dyn Sink>>,
}

impl Reporter {
    /// One without sinks, for ranks other than 0.
    pub fn silent() -> Self {
        Reporter::default()
    }

    /// Rank 0's: a progress bar if stderr is a terminal, else plain lines; and `out/metrics.jsonl` with a step
    /// line every `every` steps; with `goes_on`, behind the lines that are there already. The process began at `started`.
    pub fn new(out: &Path, every: u64, goes_on: bool, started: Instant) -> Result<Self, Error> {
        let path = out.join("metrics.jsonl");
        let metrics =
            if goes_on { Jsonl::append(&path, every, started)? } else { Jsonl::create(&path, every, started)? };
        Ok(Reporter::default().with(screen()).with(Box::new(metrics)))
    }

    /// Adds a sink.
    pub fn with(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Hands on one event. The first sink that fails ends it.
    pub fn event(&mut self, event: impl Into<Event>) -> Result<(), Error> {
        if self.sinks.is_empty() {
            return Ok(());
        }
        let event = event.into();
        self.sinks.iter_mut().try_for_each(|sink| sink.event(&event))
    }

    /// Hands on one line of text.
    pub fn note(&mut self, text: &str) {
        self.sinks.iter_mut().for_each(|sink| sink.note(text));
    }
}

/// The sink for stderr: a bar on a terminal, lines elsewhere.
pub fn screen() -> Box<dyn Sink> {
    if std::io::stderr().is_terminal() { Box::new(Terminal::new()) } else { Box::new(Plain::new(std::io::stderr())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Checkpoint;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Count(Rc<RefCell<Vec<String>>>);

    impl Sink for Count {
        fn event(&mut self, event: &Event) -> Result<(), Error> {
            self.0.borrow_mut().push(format!("event at {}", event.step()));
            Ok(())
        }

        fn note(&mut self, text: &str) {
            self.0.borrow_mut().push(text.to_string());
        }
    }

    #[test]
    fn every_sink_gets_everything_and_the_silent_one_nothing() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut reporter = Reporter::silent().with(Box::new(Count(seen.clone()))).with(Box::new(Count(seen.clone())));
        reporter.event(Checkpoint { step: 7, epoch: 1, path: "a".into(), ..Checkpoint::default() }).unwrap();
        reporter.note("hello");
        assert_eq!(*seen.borrow(), ["event at 7", "event at 7", "hello", "hello"]);
        Reporter::silent().event(Checkpoint { step: 7, epoch: 1, path: "a".into(), ..Checkpoint::default() }).unwrap();
    }

    #[test]
    fn a_failing_sink_is_heard() {
        let path = Path::new("/dev/full");
        let full = Jsonl::on(std::fs::File::options().write(true).open(path).unwrap(), path, 1, Instant::now());
        let mut reporter = Reporter::silent().with(Box::new(full));
        let error = reporter.event(Checkpoint { step: 7, ..Checkpoint::default() }).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /dev/full: No space left"), "{error}");
    }
}
