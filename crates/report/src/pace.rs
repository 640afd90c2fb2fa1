//! Means over the most recent steps, and the estimated remaining time.

use std::time::{Duration, Instant};

use super::Step;

/// Sums over the steps since the last output.
#[derive(Debug, Default)]
pub(super) struct Window {
    steps: u64,
    images: f64,
    sum: Step,
}

impl Window {
    /// Adds a step. Values that are not averaged, such as step number, epoch and learning rate, come from the last step
    /// added.
    pub fn add(&mut self, step: &Step) {
        self.steps += 1;
        self.images += step.img_per_s * step.step_ms / 1e3;
        self.sum = Step {
            loss: self.sum.loss + step.loss,
            top1: self.sum.top1 + step.top1,
            data_wait_ms: self.sum.data_wait_ms + step.data_wait_ms,
            comm_wait_ms: self.sum.comm_wait_ms + step.comm_wait_ms,
            step_ms: self.sum.step_ms + step.step_ms,
            step_ranks: std::array::from_fn(|k| self.sum.step_ranks[k] + step.step_ranks[k]),
            ..*step
        };
    }

    /// Returns the means over the steps and empties the window. Returns `None` if the window is empty. The speed is the
    /// number of images in all steps divided by the time of all steps, not a mean of the steps' speeds.
    pub fn take(&mut self) -> Option<Step> {
        let Window { steps, images, sum } = std::mem::take(self);
        let mean = |total: f64| total / steps as f64;
        (steps > 0).then(|| Step {
            loss: mean(sum.loss),
            top1: mean(sum.top1),
            data_wait_ms: mean(sum.data_wait_ms),
            comm_wait_ms: mean(sum.comm_wait_ms),
            step_ms: mean(sum.step_ms),
            step_ranks: sum.step_ranks.map(mean),
            img_per_s: if sum.step_ms > 0.0 { images * 1e3 / sum.step_ms } else { sum.img_per_s },
            ..sum
        })
    }
}

/// Estimates the remaining time from the pace of this process.
#[derive(Debug, Default)]
pub(super) struct TimeLeft {
    /// Time and number of the first step that was reported.
    from: Option<(Instant, u64)>,
}

impl TimeLeft {
    /// Returns the estimated time until step `last`, if step `step` was done at `now`. Returns `None` at the first step
    /// of this process.
    pub fn after(&mut self, step: u64, last: u64, now: Instant) -> Option<Duration> {
        let (since, first) = *self.from.get_or_insert((now, step));
        let done = step.checked_sub(first).filter(|done| *done > 0)?;
        let a_step = now.duration_since(since).as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(a_step * last.saturating_sub(step) as f64).ok()
    }
}

/// Formats a time like `0:07`, `12:30`, `3:04:05` or `2 d 3 h`.
pub(super) fn format_time(time: Duration) -> String {
    let seconds = (time.as_secs_f64()).round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{:02}", seconds % 60),
        (0, _) => format!("{hours}:{:02}:{:02}", minutes % 60, seconds % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_means_match_hand_computed_values() {
        let mut window = Window::default();
        assert_eq!(window.take(), None);
        // 100 images in 100 ms, then 100 images in 300 ms: 200 images in 400 ms are 500 per second.
        let first =
            Step { step: 1, loss: 2.0, top1: 0.5, lr: 0.1, img_per_s: 1000.0, step_ms: 100.0, ..Step::default() };
        window.add(&first);
        window.add(&Step { step: 2, loss: 1.0, lr: 0.2, img_per_s: 1000.0 / 3.0, step_ms: 300.0, ..first });
        let mean = window.take().unwrap();
        assert_eq!((mean.step, mean.loss, mean.top1, mean.lr, mean.step_ms), (2, 1.5, 0.5, 0.2, 200.0));
        assert!((mean.img_per_s - 500.0).abs() < 1e-9);
        assert_eq!(window.take(), None);
    }

    #[test]
    fn pace_counts_only_steps_of_this_process() {
        let (mut left, begin) = (TimeLeft::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        // A run that was resumed at step 500.
        assert_eq!(left.after(501, 600, at(0)), None);
        assert_eq!(left.after(511, 600, at(20)), Some(Duration::from_secs(178)));
        // An evaluation took 20 s.
        assert_eq!(left.after(521, 600, at(60)), Some(Duration::from_secs(237)));
        assert_eq!(left.after(600, 600, at(200)), Some(Duration::ZERO));
    }

    #[test]
    fn format_time_uses_minutes_hours_and_days() {
        let times = [0.4, 7.0, 750.0, 11_045.0, 184_000.0].map(|s| format_time(Duration::from_secs_f64(s)));
        assert_eq!(times, ["0:00", "0:07", "12:30", "3:04:05", "2 d 3 h"]);
    }
}
