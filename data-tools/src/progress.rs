//! One progress bar on standard error: on a terminal only, and nothing anywhere else.

use crate::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;

/// Samples between two updates: the bar is shared by all threads.
const STEP: u64 = 256;

/// A bar over samples, shared by threads.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar named `what` over `samples` samples, if their number is known; silent unless `shown`
    /// and standard error is a terminal.
    pub(crate) fn new(what: &'static str, samples: Option<u64>, shown: bool) -> Self {
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = match samples {
            Some(_) => "{msg} [{bar:40}] {human_pos}/{human_len}  {rate}/s  {eta} left",
            None => "{msg} {human_pos}  {rate}/s",
        };
        let bar = ProgressBar::with_draw_target(samples, target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.with_key("rate", write_rate).progress_chars("=> "));
        }
        Progress(bar)
    }

    /// A counter for one thread.
    pub(crate) fn counter(&self) -> Counter<'_> {
        Counter { bar: &self.0, pending: 0 }
    }
}

/// Samples a second, without decimals.
fn write_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // The bar has no way to report a failed write, and a String does not fail.
    let _ = out.write_str(&text::count(state.per_sec() as u64));
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Counts samples and tells the bar now and then.
pub(crate) struct Counter<'a> {
    bar: &'a ProgressBar,
    pending: u64,
}

impl Counter<'_> {
    /// One more sample is done.
    pub(crate) fn tick(&mut self) {
        self.pending += 1;
        if self.pending == STEP {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bar.inc(self.pending);
        self.pending = 0;
    }
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
