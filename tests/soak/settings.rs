//! The settings from the environment: duration, frequency of faults and random seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time from one fault to the next in each series.
pub const PERIOD: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time during which the test causes faults, from MINUTES.
    pub length: Duration,
    /// Seed of all random choices, from SEED. The same seed causes the same faults in the same order, but their times depend on the clock.
    pub seed: u64,
}

impl Settings {
    /// Reads MINUTES (default 2) and SEED (default: the time).
    pub fn of_environment() -> Self {
        let minutes: f64 = variable("MINUTES").unwrap_or(2.0);
        assert!(minutes > 0.0 && minutes < 1e5, "MINUTES={minutes}: expected a positive number");
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        Self { length: Duration::from_secs_f64(60.0 * minutes), seed: variable("SEED").unwrap_or_else(clock) }
    }

    /// Returns the approximate duration of an undisturbed lap: short enough for a few laps, long enough for a few faults in each.
    pub fn lap(&self) -> Duration {
        (self.length / 8).clamp(Duration::from_secs(10), Duration::from_secs(45))
    }

    /// Returns the minimum warm-up time of the steady run. Samples of this time are ignored, because memory may still grow.
    pub fn warm_up(&self) -> Duration {
        self.length / 10
    }

    /// Returns true if the test is long enough to measure constant memory even on a busy machine.
    pub fn is_long(&self) -> bool {
        self.length >= Duration::from_secs(600)
    }
}

/// Parses an environment variable. Returns `None` if it is absent or empty.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}
