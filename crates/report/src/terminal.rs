//! Shows a run on a terminal: scrolling lines, and below them a status block with a progress bar and the numbers of the
//! last steps.

use std::time::{Duration, Instant};

use base::screen;

use super::pace::{TimeLeft, Window};
use super::{BEST, Error, Event, Sink, Start, Step, Verbosity, pace, text};

/// Minimum time between two updates of the status block.
const REFRESH: Duration = Duration::from_millis(200);

/// Draws the status block on stderr.
pub struct Terminal {
    verbosity: Verbosity,
    start: Start,
    window: Window,
    left: TimeLeft,
    best: Option<String>,
    shown: Option<Instant>,
}

impl Terminal {
    /// Creates a status block that appears with the first step. If `NO_COLOR` is set, no colours are used.
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
    /// Removes the status block, so that the last messages of a run that ends early are not printed below it.
    fn drop(&mut self) {
        screen::clear();
    }
}

/// Maximum width of a line. Wider lines are hard to read.
const WIDEST: usize = 200;
/// Minimum width of the progress bar. A shorter bar would show too little.
const SHORTEST_BAR: usize = 10;

/// The content of the status block.
pub(super) struct Status<'a> {
    pub start: &'a Start,
    /// The means of the steps since the last update.
    pub mean: &'a Step,
    /// Estimated remaining time of the run.
    pub left: Option<Duration>,
    pub best: Option<&'a str>,
}

impl Status<'_> {
    /// Returns the lines for a terminal with `columns` columns. The last column stays empty, because some terminals
    /// wrap the line there.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let width = columns.min(WIDEST).saturating_sub(1).max(1);
        let mut lines = vec![self.bar(width)];
        let best = self.best.map(|best| format!("best {best}"));
        let words: Vec<String> = text::numbers(self.mean).into_iter().chain(best).collect();
        lines.extend(fill_lines(&words, width));
        lines
    }

    /// Returns `epoch 2/3 [=====>     ] 313/938  run 45 %, 0:45 left`, or the parts that fit.
    fn bar(&self, width: usize) -> String {
        let Status { start, mean, left, .. } = self;
        let head = format!("epoch {}/{}", mean.epoch + 1, start.epochs);
        let done = mean.step.saturating_sub(u64::from(mean.epoch) * start.steps_per_epoch);
        let steps = format!("{done}/{}", start.steps_per_epoch);
        let left = left.map_or(String::new(), |left| format!(", {} left", pace::format_time(left)));
        let percent = 100.0 * mean.step as f64 / start.last_step.max(1) as f64;
        let tails = [format!("{steps}  run {percent:.0} %{left}"), format!("{steps}{left}")];
        let room = |tail: &String| width.saturating_sub(head.len() + tail.len() + " [] ".len());
        match tails.iter().find(|tail| room(tail) >= SHORTEST_BAR) {
            Some(tail) => format!("{head} [{}] {tail}", bar(room(tail), done, start.steps_per_epoch)),
            None => cut(&format!("{head}  {}", tails[1]), width),
        }
    }
}

/// Returns a bar with `width` characters.
fn bar(width: usize, done: u64, of: u64) -> String {
    let full = (width as u64 * done.min(of) / of.max(1)) as usize;
    let tip = if full < width { ">" } else { "" };
    format!("{:<width$}", "=".repeat(full) + tip)
}

/// Distributes words over as few lines as needed, separated by two spaces.
fn fill_lines(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= width => *line += &format!("  {word}"),
            _ => lines.push(cut(word, width)),
        }
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(columns: usize, step: &Step) -> Vec<String> {
        let start = Start { epochs: 160, steps_per_epoch: 391, last_step: 62_560, ..Start::default() };
        let best = Some("ema.macro_f1 91.23 % (step 12,345)");
        Status { start: &start, mean: step, left: Some(Duration::from_secs(11_045)), best }.lines(columns)
    }

    fn step() -> Step {
        Step {
            step: 3_323,
            epoch: 8,
            loss: 0.4736,
            top1: 0.8325,
            lr: 0.1,
            img_per_s: 1918.4,
            step_ms: 66.7,
            ..Step::default()
        }
    }

    #[test]
    fn progress_lines_fill_the_width_of_the_terminal() {
        let drawn = lines(80, &step());
        let (full, empty) = ("=".repeat(16), " ".repeat(17));
        assert_eq!(drawn[0], format!("epoch 9/160 [{full}>{empty}] 195/391  run 5 %, 3:04:05 left"));
        let numbers = ["loss 0.4736  top-1 83.25 %  lr 0.1  1,918 img/s", "best ema.macro_f1 91.23 % (step 12,345)"];
        assert_eq!(drawn[1..], numbers);
        assert_eq!(lines(120, &step())[0].len(), 119);
    }

    /// Also tests long numbers, long waits and unusual terminal widths.
    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let slow =
            Step { data_wait_ms: 20.0, comm_wait_ms: 30.0, step_ms: 66.7, loss: 123_456.789, lr: 1.234e-7, ..step() };
        for columns in (1..=250).chain([1000]) {
            for step in [step(), slow] {
                let drawn = lines(columns, &step);
                let longest = drawn.iter().map(|line| line.chars().count()).max().unwrap();
                assert!(longest < columns.clamp(2, 201), "{columns}: {drawn:?}");
            }
            let all = lines(columns, &slow).join("  ");
            let words =
                ["loss 123456.7890", "data wait 30 %", "comm wait 45 %", "3:04:05 left", "best ema.macro_f1 91.23 %"];
            assert!(columns < 60 || words.iter().all(|word| all.contains(word)), "{columns}: {all}");
            assert!(columns < 60 || all.contains('['), "{columns}: {all}");
        }
    }

    #[test]
    fn progress_bar_is_empty_at_0_and_full_at_the_end() {
        assert_eq!([bar(4, 0, 8), bar(4, 4, 8), bar(4, 8, 8), bar(4, 9, 8)], [">   ", "==> ", "====", "===="]);
    }
}
