//! A progress bar on a terminal; everything that is not a step scrolls above it.

use super::window::Window;
use super::{Error, Event, Sink, Start, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loaders::printable_lines;
use std::time::{Duration, Instant};

/// Time between two updates of the numbers; faster than this nobody reads.
const REFRESH: Duration = Duration::from_millis(200);

/// Draws on stderr.
pub struct Terminal {
    bar: ProgressBar,
    start: Start,
    window: Window,
    shown: Option<Instant>,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminal {
    /// A bar that appears with the start of the run.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Terminal { bar, start: Start::default(), window: Window::default(), shown: None }
    }

    fn line(&self, text: &str) {
        let text = printable_lines(text);
        // Between the bar's lines while it is drawn; a hidden bar prints nothing.
        if self.bar.is_hidden() || self.bar.is_finished() {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }

    fn begin(&mut self, start: &Start) {
        self.line(&text::start(start));
        self.start = start.clone();
        // Drawn only once its style and position are settled: no flash of another bar.
        self.bar = ProgressBar::with_draw_target(Some(start.last_step), ProgressDrawTarget::hidden())
            .with_style(style().progress_chars("=> "))
            .with_position(start.step);
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        // A resumed run has done steps before this process began: they must not enter the estimate.
        self.bar.reset_eta();
    }

    fn show(&mut self) {
        let Some(mean) = self.window.take() else { return };
        self.bar.set_prefix(format!("epoch {}/{}", mean.epoch + 1, self.start.epochs));
        self.bar.set_position(mean.step);
        self.bar.set_message(format!("{}\n{}", text::score(&mean), text::times(&mean)));
        self.shown = Some(Instant::now());
    }
}

/// The numbers stand on two lines of their own, so that all of them fit a terminal of 80 columns.
const TEMPLATE: &str = "{msg}\n{prefix} [{wide_bar}] step {pos}/{len}, {eta} left";

fn style() -> ProgressStyle {
    // indicatif has parsed this constant in the test below; should it ever refuse it, its plain bar will do.
    ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Sink for Terminal {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Start(start) => self.begin(start),
            Event::Step(step) => {
                self.window.add(step);
                if self.shown.is_none_or(|shown| shown.elapsed() >= REFRESH) {
                    self.show();
                }
            }
            Event::Epoch(epoch) => {
                self.show();
                self.line(&text::epoch(epoch));
            }
            Event::Exchange(exchange) => self.line(&text::exchange(exchange)),
            Event::Layers(_) => {}
            Event::Eval(eval) => self.line(&text::eval(eval)),
            Event::Checkpoint(checkpoint) => self.line(&text::checkpoint(checkpoint)),
            Event::End(end) => {
                self.show();
                self.bar.finish_and_clear();
                self.line(&text::end(end));
            }
        }
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }
}

impl Drop for Terminal {
    /// A failed run leaves the terminal clean for its error message.
    fn drop(&mut self) {
        if !self.bar.is_finished() {
            self.bar.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn the_bar_follows_the_steps() {
        use super::super::{End, Epoch, Step};
        let mut terminal = Terminal::new();
        terminal.event(&Start { step: 5, last_step: 20, epochs: 2, ..Start::default() }.into()).unwrap();
        assert_eq!((terminal.bar.position(), terminal.bar.length()), (5, Some(20)));
        for step in 6..=10 {
            terminal.event(&Step { step, loss: 1.5, ..Step::default() }.into()).unwrap();
        }
        terminal.event(&Epoch { step: 10, ..Epoch::default() }.into()).unwrap();
        assert_eq!((terminal.bar.position(), terminal.bar.prefix().as_str()), (10, "epoch 1/2"));
        assert!(terminal.bar.message().contains("loss  1.5000"));
        terminal.event(&End::default().into()).unwrap();
        assert!(terminal.bar.is_finished());
    }
}
