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

impl Spent {
    /// The parts for a thread's `whole` time, in the proportions of those measured: of some of its samples.
    pub(super) fn extended_to(self, whole: Duration) -> Self {
        let measured = self.reading + self.decoding + self.writing;
        let part = |part: Duration| whole.mul_f64(part.as_secs_f64() / measured.as_secs_f64().max(1e-9));
        let Spent { reading, decoding, writing, syncing } = self;
        Spent { reading: part(reading), decoding: part(decoding), writing: part(writing), syncing }
    }
}

/// A thread's watch: each lap begins where the one before it has ended.
pub(super) struct Watch {
    /// None for a watch that stands still, which costs nothing.
    last: Option<Instant>,
}

impl Watch {
    /// Starts the first lap.
    pub fn start() -> Self {
        Watch { last: Some(Instant::now()) }
    }

    /// The same, or a watch that stands still.
    pub fn start_if(runs: bool) -> Self {
        if runs { Watch::start() } else { Watch { last: None } }
    }

    /// Ends a lap and adds it to `sum`.
    pub fn lap(&mut self, sum: &mut Duration) {
        let Some(last) = &mut self.last else { return };
        let now = Instant::now();
        *sum += now - *last;
        *last = now;
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
        Watch::start_if(false).lap(&mut all.decoding);
        assert_eq!(all.decoding, Duration::ZERO);
    }

    #[test]
    fn what_some_samples_took_stands_for_all() {
        let ms = Duration::from_millis;
        let some = Spent { reading: ms(1), decoding: ms(3), writing: ms(4), syncing: ms(5) };
        let all = some.extended_to(ms(80));
        let near = |got: Duration, expected| got.abs_diff(expected) < Duration::from_micros(1);
        assert!(near(all.reading, ms(10)) && near(all.decoding, ms(30)) && near(all.writing, ms(40)), "{all:?}");
        assert_eq!(all.syncing, ms(5));
        assert_eq!(Spent::default().extended_to(ms(80)), Spent::default());
    }
}
