//! How long the rest of a run takes, by the pace since the first step of this process: scorings and checkpoints count, the start does not.

use std::time::{Duration, Instant};

/// The pace of a run.
#[derive(Debug, Default)]
pub(super) struct TimeLeft {
    /// When the first step of this process was done, and its number.
    from: Option<(Instant, u64)>,
}

impl TimeLeft {
    /// The time from step `step` to `last`, `now` that it is done; none while a single one is done.
    pub fn after(&mut self, step: u64, last: u64, now: Instant) -> Option<Duration> {
        let (since, first) = *self.from.get_or_insert((now, step));
        let done = step.checked_sub(first).filter(|done| *done > 0)?;
        let a_step = now.duration_since(since).as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(a_step * last.saturating_sub(step) as f64).ok()
    }
}

/// `0:07`, `12:30`, `3:04:05`, `2 d 3 h`.
pub(super) fn shown(time: Duration) -> String {
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
    fn the_pace_is_that_of_this_process() {
        let (mut left, begin) = (TimeLeft::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        // a run that goes on behind step 500
        assert_eq!(left.after(501, 600, at(0)), None);
        assert_eq!(left.after(511, 600, at(20)), Some(Duration::from_secs(178)));
        // a scoring of 20 s
        assert_eq!(left.after(521, 600, at(60)), Some(Duration::from_secs(237)));
        assert_eq!(left.after(600, 600, at(200)), Some(Duration::ZERO));
    }

    #[test]
    fn times_for_the_eye() {
        let times = [0.4, 7.0, 750.0, 11_045.0, 184_000.0].map(|s| shown(Duration::from_secs_f64(s)));
        assert_eq!(times, ["0:00", "0:07", "12:30", "3:04:05", "2 d 3 h"]);
    }
}
