//! A run on a terminal: lines that scroll, and the status block below them.

use std::time::{Duration, Instant};

use base::screen;

use super::status::Status;
use super::time_left::TimeLeft;
use super::window::Window;
use super::{BEST, Error, Event, Sink, Start, Verbosity, text};

/// Time between two updates of the numbers; faster than this nobody reads.
const REFRESH: Duration = Duration::from_millis(200);

/// Draws on stderr.
pub struct Terminal {
    verbosity: Verbosity,
    start: Start,
    window: Window,
    left: TimeLeft,
    /// The best score so far.
    best: Option<String>,
    shown: Option<Instant>,
}

impl Terminal {
    /// A block that appears with the first step. Colours stay away where `NO_COLOR` is set.
    pub fn new(verbosity: Verbosity) -> Self {
        screen::set_colors(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
        let (start, window, left) = (Start::default(), Window::default(), TimeLeft::default());
        Self { verbosity, start, window, left, best: None, shown: None }
    }

    fn step(&mut self, due: bool) {
        if !due || self.verbosity == Verbosity::Quiet {
            return;
        }
        let Some(mean) = self.window.take() else { return };
        let left = self.left.after(mean.step, self.start.last_step, Instant::now());
        let status = Status { start: &self.start, mean: &mean, left, best: self.best.as_deref() };
        screen::show(status.lines(screen::columns()));
        self.shown = Some(Instant::now());
    }
}

impl Sink for Terminal {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Step(step) => {
                self.window.add(step);
                self.step(self.shown.is_none_or(|shown| shown.elapsed() >= REFRESH));
            }
            Event::Start(start) => {
                self.best = start.facts.get(BEST).cloned();
                self.start = start.clone();
            }
            Event::Eval(eval) => self.best = text::best_of(eval).or(self.best.take()),
            Event::Epoch(_) => self.step(true),
            Event::End(_) => screen::clear(),
            _ => {}
        }
        text::line(event, self.verbosity).iter().for_each(|line| screen::say(line));
        Ok(())
    }

    fn note(&mut self, text: &str) {
        if self.verbosity.shows(text) {
            screen::say(text);
        }
    }

    fn fact(&mut self, text: &str) {
        if self.verbosity.shows_facts() {
            screen::say(text);
        }
    }
}

impl Drop for Terminal {
    /// A run that ends early leaves the terminal clean for its last words.
    fn drop(&mut self) {
        screen::clear();
    }
}
