//! How long, how often, and which random choices: from the environment.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From one fault to the next.
pub const PERIOD: Duration = Duration::from_secs(15);

/// Settings of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long faults are put in: MINUTES.
    pub length: Duration,
    /// Root of all random choices: SEED. The same seed gives the same faults in the same order; their moments follow the clock.
    pub seed: u64,
}

impl Settings {
    /// MINUTES (2 if it is absent) and SEED (that of the clock).
    pub fn of_environment() -> Self {
        let minutes: f64 = variable("MINUTES").unwrap_or(2.0);
        assert!(minutes > 0.0 && minutes < 1e5, "MINUTES={minutes}: expected a positive number");
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        Self { length: Duration::from_secs_f64(60.0 * minutes), seed: variable("SEED").unwrap_or_else(clock) }
    }

    /// How long an undisturbed run of one lap takes, about: short enough for several laps, long enough for several faults in each.
    pub fn lap(&self) -> Duration {
        (self.length / 8).clamp(Duration::from_secs(10), Duration::from_secs(45))
    }

    /// How long memory may still grow at the start, at least.
    pub fn warm_up(&self) -> Duration {
        self.length / 10
    }

    /// Whether it lasts long enough to say whether memory stays flat, however busy the machine is.
    pub fn is_long(&self) -> bool {
        self.length >= Duration::from_secs(600)
    }
}

/// A variable's number; nothing if it is absent or empty.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}
