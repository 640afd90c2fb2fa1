//! Progress on standard error: a bar on a terminal, otherwise a line every few seconds.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use loaders::stall::{StallLimits, StallWatch};

use crate::pool::lock;
use crate::text;

/// Number of samples that a thread counts before it updates the shared bar.
const STEP: u64 = 256;
/// Time between two lines if standard error is not a terminal.
const LINES: Duration = Duration::from_secs(10);

/// The bar on the terminal, if there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Writes a line to standard error, above the bar if there is one.
pub(crate) fn say(line: &str) {
    let bar = lock(&BAR).clone();
    match bar {
        Some(bar) => bar.println(line),
        // If standard error is closed, there is no other place to write to.
        None => drop(writeln!(std::io::stderr(), "{line}")),
    }
}

/// Progress of a command in samples, shared by its threads.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    samples: Option<u64>,
    started: Instant,
    /// When the last line was written. `None` if no lines are written.
    last: Option<Mutex<Instant>>,
}

impl Progress {
    /// Starts progress labelled `what`. `samples` is the total if known. Nothing is printed unless `shown` is true.
    pub(crate) fn new(what: &'static str, samples: Option<u64>, shown: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = match samples {
            Some(_) => "{msg} [{wide_bar}] {human_pos}/{human_len}  {rate}/s  {eta} left",
            None => "{msg} {human_pos}  {rate}/s",
        };
        let bar = ProgressBar::with_draw_target(samples, target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.with_key("rate", write_rate).progress_chars("=> "));
        }
        if shown && terminal {
            *lock(&BAR) = Some(bar.clone());
        }
        let started = Instant::now();
        let last = (shown && !terminal).then(|| Mutex::new(started));
        Progress { bar, what, samples, started, last }
    }

    /// Returns a counter for one thread.
    pub(crate) fn counter(&self) -> Counter<'_> {
        Counter { progress: self, pending: 0 }
    }

    /// Adds finished samples. If lines are written instead of a bar, writes one when the last is at least [`LINES`] old.
    pub(crate) fn add(&self, samples: u64) {
        self.bar.inc(samples);
        let Some(last) = &self.last else { return };
        // If another thread holds the lock, that thread writes the line.
        let Ok(mut last) = last.try_lock() else { return };
        if last.elapsed() >= LINES {
            *last = Instant::now();
            let line = line(self.what, self.bar.position(), self.samples, self.started.elapsed());
            // If standard error is closed, there is no other place to write to.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// Writes the rate without decimals.
fn write_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // The bar cannot report a failed write, and writing to a `String` does not fail.
    let _ = out.write_str(&text::count(state.per_sec() as u64));
}

/// Formats a line such as `converting 12,000 of 48,000, 1,200/s, 30 s left`.
fn line(what: &str, done: u64, samples: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let done_of = match samples {
        Some(samples) => format!("{} of {}", text::count(done), text::count(samples)),
        None => text::count(done),
    };
    let left = match samples {
        Some(samples) if done > 0 => format!(", {} left", text::time(samples.saturating_sub(done) as f64 / rate)),
        _ => String::new(),
    };
    format!("{what} {done_of}, {}/s{left}", text::count(rate as u64))
}

impl Drop for Progress {
    fn drop(&mut self) {
        *lock(&BAR) = None;
        self.bar.finish_and_clear();
    }
}

/// Counts the samples of one thread and updates the shared bar every [`STEP`] samples.
pub(crate) struct Counter<'a> {
    progress: &'a Progress,
    pending: u64,
}

impl Counter<'_> {
    /// Counts one finished sample.
    pub(crate) fn tick(&mut self) {
        self.pending += 1;
        if self.pending == STEP {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.progress.add(self.pending);
        self.pending = 0;
    }
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Starts a watchdog for stalled file operations of all threads of this process. It stops when the result is dropped.
pub fn watch(limits: StallLimits) -> StallWatch {
    StallWatch::start(limits, say)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_rate_and_time_left() {
        let ten = Duration::from_secs(10);
        assert_eq!(line("converting", 12_000, Some(48_000), ten), "converting 12,000 of 48,000, 1,200/s, 30 s left");
        assert_eq!(line("reading", 500, None, ten), "reading 500, 50/s");
    }
}
