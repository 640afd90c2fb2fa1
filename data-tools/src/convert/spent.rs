//! What a conversion's threads spend on the source, on the pictures and on the shards; the rest of their time is waiting.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Time of all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Opening the source, listing and unpacking it, and reading its samples.
    pub reading: Duration,
    /// Checking, decoding, resizing, encoding and measuring pictures.
    pub decoding: Duration,
    /// Framing records and writing them to shards.
    pub writing: Duration,
    /// Making shards durable and writing their indexes: waiting for the disk, where it can be, beside the threads that convert.
    pub syncing: Duration,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.reading += other.reading;
        self.decoding += other.decoding;
        self.writing += other.writing;
        self.syncing += other.syncing;
    }
}

/// A thread's watch: each lap begins where the one before it has ended.
pub(super) struct Watch {
    last: Instant,
}

impl Watch {
    /// Starts the first lap.
    pub fn start() -> Self {
        Watch { last: Instant::now() }
    }

    /// Ends a lap and adds it to `sum`.
    pub fn lap(&mut self, sum: &mut Duration) {
        let now = Instant::now();
        *sum += now - self.last;
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up() {
        let nap = Duration::from_millis(5);
        let (mut spent, mut all) = (Spent::default(), Spent::default());
        let started = Instant::now();
        let mut watch = Watch::start();
        std::thread::sleep(nap);
        watch.lap(&mut spent.reading);
        std::thread::sleep(2 * nap);
        watch.lap(&mut spent.writing);
        let most = started.elapsed();
        assert!(spent.reading >= nap && spent.writing >= 2 * nap && spent.reading + spent.writing <= most);
        all += spent;
        all += spent;
        assert_eq!((all.reading, all.decoding, all.writing), (2 * spent.reading, Duration::ZERO, 2 * spent.writing));
    }
}
