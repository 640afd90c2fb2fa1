//! Plain lines for logs and batch jobs: no escape codes, one line at a time, with the current and the remaining time.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use base::text::printable_lines;

use super::pace::{TimeLeft, Window};
use super::{Error, Event, Sink, Start, Verbosity, text};

/// Number of steps between two progress lines, if the time between them is within the limits below.
const STEPS: u64 = 50;
/// Minimum time between two progress lines.
const SHORTEST: Duration = Duration::from_secs(1);
/// Maximum time between two progress lines.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    /// The time, only for progress lines.
    Clock,
    /// Date and time, for every line.
    Date,
}

/// Writes lines to a stream, usually stderr.
///
/// A stream that fails (a closed pipe, a lost terminal) must not end a training run, so errors are ignored here. Errors
/// of metrics.jsonl, which has all the data, do end the run.
pub struct Plain<W> {
    out: W,
    stamp: Stamp,
    verbosity: Verbosity,
    start: Start,
    window: Window,
    left: TimeLeft,
    since: u64,
    shown: Option<Instant>,
    /// Time between two progress lines, if the user set it.
    apart: Option<Duration>,
}

impl<W: Write> Plain<W> {
    /// Writes to `out` for a user who watches the run. `verbosity` selects what is written.
    pub fn new(out: W, verbosity: Verbosity) -> Self {
        Self::stamped(out, Stamp::Clock, verbosity)
    }

    /// Writes everything to `out`, with date and time, as a log.
    pub fn log(out: W) -> Self {
        Self::stamped(out, Stamp::Date, Verbosity::Verbose)
    }

    fn stamped(out: W, stamp: Stamp, verbosity: Verbosity) -> Self {
        let (start, window, left) = (Start::default(), Window::default(), TimeLeft::default());
        Plain { out, stamp, verbosity, start, window, left, since: 0, shown: None, apart: None }
    }

    pub fn apart(self, apart: Option<Duration>) -> Self {
        Self { apart, ..self }
    }

    /// Writes lines of text. With [`Stamp::Date`], each line begins with date and time, otherwise only progress lines
    /// begin with the time (UTC).
    fn lines(&mut self, text: &str, progress: bool) {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let stamp = match self.stamp {
            Stamp::Date => format!("{now}  "),
            // The time in 2026-11-22T18:03:44Z.
            Stamp::Clock if progress => format!("{}  ", now.get(11..).unwrap_or_default()),
            Stamp::Clock => String::new(),
        };
        let text: String = printable_lines(text).lines().map(|line| format!("{stamp}{line}\n")).collect();
        let _ = self.out.write_all(text.as_bytes());
    }

    /// Returns true if a progress line is due. The first step has one. If `apart` is set, each later line is due this
    /// time after the previous one. Otherwise it is due after [`LONGEST`], or after [`STEPS`] steps if they took at
    /// least [`SHORTEST`].
    fn due(&self) -> bool {
        let Some(shown) = self.shown else { return true };
        let passed = shown.elapsed();
        if let Some(apart) = self.apart {
            return passed >= apart;
        }
        passed >= LONGEST || (self.since >= STEPS && passed >= SHORTEST)
    }

    fn show_steps(&mut self) {
        let Some(mean) = self.window.take() else { return };
        let left = self.left.after(mean.step, self.start.last_step, Instant::now());
        if self.verbosity > Verbosity::Quiet {
            self.lines(&text::step(&self.start, &mean, left, self.verbosity), true);
        }
        self.since = 0;
        self.shown = Some(Instant::now());
    }
}

impl<W: Write> Sink for Plain<W> {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Step(step) => {
                self.window.add(step);
                self.since += 1;
                if self.due() {
                    self.show_steps();
                }
            }
            Event::Start(start) => self.start = start.clone(),
            Event::Epoch(_) | Event::End(_) => self.show_steps(),
            _ => {}
        }
        let progress = matches!(event, Event::Epoch(_) | Event::Eval(_) | Event::End(_));
        text::line(event, self.verbosity).iter().for_each(|line| self.lines(line, progress));
        let _ = self.out.flush();
        Ok(())
    }

    fn note(&mut self, text: &str) {
        if self.verbosity.shows(text) {
            self.lines(text, false);
        }
    }

    fn fact(&mut self, text: &str) {
        if self.verbosity.shows_facts() {
            self.lines(text, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{End, Epoch, Eval, Step};
    use super::*;

    /// Returns the output of a run with a hundred steps.
    fn written(mut plain: Plain<Vec<u8>>) -> String {
        let start =
            Start { epochs: 12, last_step: 1200, model: "lenet".into(), parameters: 3_274_634, ..Start::default() };
        plain.event(&start.into()).unwrap();
        for step in 1..=100 {
            plain.event(&Step { step, loss: 2.0, top1: 0.1, lr: 0.05, ..Step::default() }.into()).unwrap();
        }
        plain.event(&Epoch { step: 100, ..Epoch::default() }.into()).unwrap();
        plain.event(&Eval { split: "test".into(), top1: 0.9012, count: 10_000, ..Eval::default() }.into()).unwrap();
        plain.note("a word");
        plain.note("warning: a warning");
        plain.fact("a fact");
        plain.event(&End { step: 100, model: "runs/a/model.h5".into(), ..End::default() }.into()).unwrap();
        String::from_utf8(plain.out).unwrap()
    }

    /// Returns true if a line is a time like 18:03:44Z followed by `rest`.
    fn is_clocked(line: &str, rest: &str) -> bool {
        let (clock, text) = line.split_at(line.len().min(11));
        let digits = clock.chars().filter(char::is_ascii_digit).count();
        digits == 6 && clock.ends_with("Z  ") && text.starts_with(rest)
    }

    #[test]
    fn the_first_step_the_epoch_and_the_end_have_lines_with_the_clock() {
        let text = written(Plain::new(Vec::new(), Verbosity::Normal));
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "epoch 1/12  step 1/1200  ",
            "epoch 1/12  step 100/1200  ",
            "epoch 1 done: loss 0.0000",
            "test: top-1 90.12 %",
        ];
        assert_eq!(lines.len(), 2 + expected.len() + 3, "{text}");
        assert!(lines[0].starts_with("lenet: 3,274,634 parameters, "), "{text}");
        assert!(lines[2..].iter().zip(expected).all(|(line, rest)| is_clocked(line, rest)), "{text}");
        assert!(!lines[2].contains("left") && lines[3].ends_with("  0:00 left"), "{text}");
        assert_eq!(lines[6..8], ["a word", "warning: a warning"]);
        assert!(is_clocked(lines[8], "done: 100 steps in") && lines[8].ends_with("model: runs/a/model.h5"), "{text}");
    }

    #[test]
    fn a_log_has_everything_and_a_quiet_run_only_warnings() {
        let text = written(Plain::log(Vec::new()));
        assert!(
            text.contains("Z  a fact\n") && text.contains("comm wait 0.0 ms") && text.contains("Z  ranks  0"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.starts_with("20") && line.get(19..22) == Some("Z  ")), "{text}");
        assert_eq!(written(Plain::new(Vec::new(), Verbosity::Quiet)), "warning: a warning\n");
    }

    #[test]
    fn write_errors_of_the_stream_are_ignored() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        Plain::new(full, Verbosity::Normal).event(&Start::default().into()).unwrap();
    }
}
