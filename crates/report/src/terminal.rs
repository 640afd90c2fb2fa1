//! Shows a run on a terminal: lines that scroll, and below them a status block with a progress bar and the numbers of the last steps.

use std::time::{Duration, Instant};

use base::screen;

use super::pace::TimeLeft;
use super::pace::Window;
use super::{BEST, Error, Event, Sink, Start, Step, Verbosity, pace, text};

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

/// Wider lines are hard to read.
const WIDEST: usize = 200;
/// The least that a bar tells by.
const SHORTEST_BAR: usize = 10;

/// What the block shows.
pub(super) struct Status<'a> {
    /// The run.
    pub start: &'a Start,
    /// The means of the steps that were not shown yet.
    pub mean: &'a Step,
    /// Until the end of the run.
    pub left: Option<Duration>,
    /// The best score so far.
    pub best: Option<&'a str>,
}

impl Status<'_> {
    /// The lines for a terminal of so many columns, of which the last one stays empty: some terminals break the line there.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let width = columns.min(WIDEST).saturating_sub(1).max(1);
        let mut lines = vec![self.bar(width)];
        let best = self.best.map(|best| format!("best {best}"));
        let words: Vec<String> = text::numbers(self.mean).into_iter().chain(best).collect();
        lines.extend(filled(&words, width));
        lines
    }

    /// `epoch 2/3 [=====>     ] 313/938  run 45 %, 0:45 left`, as much of it as fits.
    fn bar(&self, width: usize) -> String {
        let Status { start, mean, left, .. } = self;
        let head = format!("epoch {}/{}", mean.epoch + 1, start.epochs);
        let done = mean.step.saturating_sub(u64::from(mean.epoch) * start.steps_per_epoch);
        let steps = format!("{done}/{}", start.steps_per_epoch);
        let left = left.map_or(String::new(), |left| format!(", {} left", pace::shown(left)));
        let percent = 100.0 * mean.step as f64 / start.last_step.max(1) as f64;
        let tails = [format!("{steps}  run {percent:.0} %{left}"), format!("{steps}{left}")];
        let room = |tail: &String| width.saturating_sub(head.len() + tail.len() + " [] ".len());
        match tails.iter().find(|tail| room(tail) >= SHORTEST_BAR) {
            Some(tail) => format!("{head} [{}] {tail}", bar(room(tail), done, start.steps_per_epoch)),
            None => cut(&format!("{head}  {}", tails[1]), width),
        }
    }
}

/// A bar of so many characters.
fn bar(width: usize, done: u64, of: u64) -> String {
    let full = (width as u64 * done.min(of) / of.max(1)) as usize;
    let tip = if full < width { ">" } else { "" };
    format!("{:<width$}", "=".repeat(full) + tip)
}

/// Words on as few lines as they need, two spaces apart.
fn filled(words: &[String], width: usize) -> Vec<String> {
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
    fn it_says_where_the_run_is_and_fills_the_terminal() {
        let drawn = lines(80, &step());
        let (full, empty) = ("=".repeat(16), " ".repeat(17));
        assert_eq!(drawn[0], format!("epoch 9/160 [{full}>{empty}] 195/391  run 5 %, 3:04:05 left"));
        let numbers = ["loss 0.4736  top-1 83.25 %  lr 0.1  1,918 img/s", "best ema.macro_f1 91.23 % (step 12,345)"];
        assert_eq!(drawn[1..], numbers);
        assert_eq!(lines(120, &step())[0].len(), 119);
    }

    /// Also with long numbers and waits, and in windows that nobody has.
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
    fn bars_begin_and_end() {
        assert_eq!([bar(4, 0, 8), bar(4, 4, 8), bar(4, 8, 8), bar(4, 9, 8)], [">   ", "==> ", "====", "===="]);
    }
}
