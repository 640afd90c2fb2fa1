//! Plain lines, for logs and batch jobs: no escape codes, one line at a time, all the numbers in each.

use super::window::Window;
use super::{Error, Event, Sink, Start, text};
use loaders::printable_lines;
use std::io::Write;
use std::time::{Duration, Instant};

/// Steps between two lines, unless time says otherwise.
const STEPS: u64 = 50;
/// However fast the steps, no more than one line in this time.
const SHORTEST: Duration = Duration::from_secs(1);
/// However slow the steps, a line after this time.
const LONGEST: Duration = Duration::from_secs(5);

/// Writes lines to a stream, stderr as a rule.
///
/// A stream that fails (a closed pipe, a lost terminal) is no reason to end a training run: errors are dropped here,
/// and metrics.jsonl, whose errors count, still holds everything.
pub struct Plain<W> {
    out: W,
    start: Start,
    window: Window,
    since: u64,
    shown: Option<Instant>,
}

impl<W: Write> Plain<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Plain { out, start: Start::default(), window: Window::default(), since: 0, shown: None }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{}", printable_lines(text));
    }

    /// Whether it is time for a line: the first step, then by count and time.
    fn due(&self) -> bool {
        let Some(shown) = self.shown else { return true };
        let passed = shown.elapsed();
        passed >= LONGEST || (self.since >= STEPS && passed >= SHORTEST)
    }

    fn show_steps(&mut self) {
        let Some(mean) = self.window.take() else { return };
        let (epochs, last) = (self.start.epochs, self.start.last_step);
        let (wide, far) = (epochs.to_string().len(), last.to_string().len());
        let (epoch, step) = (mean.epoch + 1, mean.step);
        self.line(&format!("epoch {epoch:wide$}/{epochs}  step {step:far$}/{last}  {}", text::step(&mean)));
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
                return Ok(());
            }
            Event::Start(start) => {
                self.start = start.clone();
                self.line(&text::start(start));
            }
            Event::Epoch(epoch) => {
                self.show_steps();
                self.line(&text::epoch(epoch));
            }
            Event::Exchange(exchange) => self.line(&text::exchange(exchange)),
            Event::Layers(_) => {}
            Event::Eval(eval) => self.line(&text::eval(eval)),
            Event::Checkpoint(checkpoint) => self.line(&text::checkpoint(checkpoint)),
            Event::End(end) => {
                self.show_steps();
                self.line(&text::end(end));
            }
        }
        let _ = self.out.flush();
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{End, Epoch, Eval, Step};
    use super::*;

    #[test]
    fn the_first_step_the_epoch_and_the_end_have_lines() {
        let mut plain = Plain::new(Vec::new());
        let start =
            Start { epochs: 12, last_step: 1200, model: "lenet".into(), parameters: 3_274_634, ..Start::default() };
        plain.event(&start.into()).unwrap();
        for step in 1..=100 {
            plain.event(&Step { step, loss: 2.0, top1: 0.1, lr: 0.05, ..Step::default() }.into()).unwrap();
        }
        plain.event(&Epoch { step: 100, ..Epoch::default() }.into()).unwrap();
        plain.event(&Eval { split: "test".into(), top1: 0.9012, count: 10_000, ..Eval::default() }.into()).unwrap();
        plain.note("a warning");
        plain.event(&End { step: 100, model: "runs/a/model.h5".into(), ..End::default() }.into()).unwrap();
        let text = String::from_utf8(plain.out).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("epoch")).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("epoch  1/12  step    1/1200  loss  2.0000  top-1 10.00 %  lr 0.05"), "{text}");
        assert!(lines[1].starts_with("epoch  1/12  step  100/1200"), "{text}");
        assert!(text.contains("lenet, 3,274,634 parameters\n"), "{text}");
        assert!(text.contains("\ntest: top-1 90.12 %") && text.contains("(10,000 images)\na warning\n"), "{text}");
        assert!(text.ends_with("model: runs/a/model.h5\n"), "{text}");
    }

    #[test]
    fn a_lost_stream_does_not_end_the_run() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        Plain::new(full).event(&Start::default().into()).unwrap();
    }
}
