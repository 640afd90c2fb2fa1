//! What a conversion's threads spend on the pictures and on the shards; the rest of their time goes to the source and to waiting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time of all threads together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// Checking, decoding, resizing and encoding pictures.
    pub decoding: Duration,
    /// Framing records and writing shards.
    pub writing: Duration,
}

/// Nanoseconds that threads add up.
#[derive(Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// Runs `part` and adds what it took.
    pub fn time<R>(&self, part: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = part();
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
        result
    }

    /// The sum so far.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let clock = Clock::default();
        let nap = Duration::from_millis(5);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| clock.time(|| std::thread::sleep(nap)));
            }
        });
        assert_eq!(clock.time(|| 7), 7);
        assert!(clock.sum() >= 2 * nap);
    }
}
