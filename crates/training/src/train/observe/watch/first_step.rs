//! A word to whoever waits for the first step: after half a minute without one, and again after twice that, four times, and so on.

use std::time::Duration;

use super::activity::Activity;

/// How long a start may take without a word.
const PATIENCE: Duration = Duration::from_secs(30);

/// When the next word is due.
pub(super) struct FirstStep {
    next: Duration,
}

impl Default for FirstStep {
    fn default() -> Self {
        Self { next: PATIENCE }
    }
}

impl FirstStep {
    /// What to say `elapsed` after the start, where this rank has done `activity` for `since`; nothing while nothing is due.
    pub(super) fn due(&mut self, elapsed: Duration, activity: Activity, since: Duration) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        while self.next <= elapsed {
            self.next *= 2;
        }
        let why = match activity {
            Activity::Starting | Activity::Reading | Activity::Staging => {
                "planning a large network, reading a checkpoint, and copying with --stage or reading shards for the first time take long"
            }
            Activity::Data { .. } => {
                "`trireme bench loader` says what the loader can do; the first reads of a file come from the disk"
            }
            _ => "a smaller batch or more --threads make a step shorter; `trireme bench step` measures one",
        };
        Some(format!(
            "note: no step is done {:.0} s after the start: this rank {activity} for {:.0} s; {why}",
            elapsed.as_secs_f64(),
            since.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_start_is_spoken_of_now_and_then() {
        let (mut first, s) = (FirstStep::default(), Duration::from_secs);
        let mut at = |elapsed, activity| first.due(s(elapsed), activity, s(7));
        assert_eq!(at(29, Activity::Starting), None);
        let text = at(30, Activity::Starting).unwrap();
        assert!(
            text.contains("no step is done 30 s after the start: this rank prepares the run for 7 s; planning"),
            "{text}"
        );
        assert_eq!(at(59, Activity::Starting), None);
        // a process that was stopped says it once
        assert!(at(200, Activity::Data { step: 1, worker: 0 }).unwrap().contains("bench loader"));
        assert_eq!(at(239, Activity::Computing { step: 1 }), None);
        assert!(at(240, Activity::Computing { step: 1 }).unwrap().contains("smaller batch"));
    }
}
