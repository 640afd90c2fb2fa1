//! Statistics about the batches that a loader has delivered, and about the time of the consumer and the threads.

use std::ops::Sub;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sync::AtomicU64;

/// Total time of all loader threads by stage. The times for reading, decoding and transforming are estimated from every
/// 16th image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// Finding, reading and checking records.
    pub read: Duration,
    pub decode: Duration,
    pub transform: Duration,
    /// Waiting for a free slot, because the consumer was slower.
    pub slots: Duration,
}

/// Statistics since the start of a loader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderStats {
    /// Time for which the consumer waited for batches.
    pub wait: Duration,
    /// Number of images delivered.
    pub images: u64,
    /// Size of the records of these images in bytes, including framing.
    pub bytes: u64,
    /// Number of samples that were left out because they could not be used.
    pub skipped: u64,
    /// Number of batches delivered.
    pub batches: u64,
    /// Sum over these batches: how many batches were ready when each was requested.
    pub queue: u64,
    /// Time of the threads by stage.
    pub stages: Stages,
}

impl Sub for LoaderStats {
    type Output = Self;

    /// Returns the statistics since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        let (a, b) = (self.stages, earlier.stages);
        let stages = Stages {
            read: a.read.saturating_sub(b.read),
            decode: a.decode.saturating_sub(b.decode),
            transform: a.transform.saturating_sub(b.transform),
            slots: a.slots.saturating_sub(b.slots),
        };
        Self {
            wait: self.wait.saturating_sub(earlier.wait),
            images: self.images - earlier.images,
            bytes: self.bytes - earlier.bytes,
            skipped: self.skipped - earlier.skipped,
            batches: self.batches - earlier.batches,
            queue: self.queue - earlier.queue,
            stages,
        }
    }
}

impl LoaderStats {
    /// Returns the average number of batches that were ready when one was requested.
    pub fn depth(&self) -> f64 {
        self.queue as f64 / self.batches.max(1) as f64
    }
}

/// One image out of this many is timed. Reading the clock for every image would cost more than some transforms.
const SAMPLED: u64 = 16;

/// Nanoseconds, summed over a loader's threads. Threads add their times after each piece of a batch.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    read: AtomicU64,
    decode: AtomicU64,
    transform: AtomicU64,
    slots: AtomicU64,
}

/// The times of one thread since it last added them to the totals. Except for `waited`, they cover only timed images.
/// `count` is never reset.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of images since the thread started.
    pub count: u64,
    pub images: u64,
    pub timed: u64,
    pub read: Duration,
    pub decode: Duration,
    pub transform: Duration,
    /// Time spent waiting for records from reader threads, for all images.
    pub waited: Duration,
}

impl Tally {
    /// Counts an image. Returns true if it should be timed.
    pub(crate) fn begin(&mut self) -> bool {
        let timed = self.count.is_multiple_of(SAMPLED);
        (self.count, self.images) = (self.count + 1, self.images + 1);
        timed
    }

    /// Adds the times of one image.
    pub(crate) fn add(&mut self, read: Duration, decode: Duration, transform: Duration) {
        self.timed += 1;
        self.read += read;
        self.decode += decode;
        self.transform += transform;
    }
}

impl Totals {
    /// Adds time spent waiting for a free slot.
    pub(crate) fn add_slots(&self, waited: Duration) {
        self.slots.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Adds a thread's tally, scaled to all its images, and clears it. If no image was timed, the tally is kept for the
    /// next call.
    pub(crate) fn add(&self, tally: &mut Tally) {
        if tally.timed == 0 {
            return;
        }
        let scaled = |time: Duration| (time.as_nanos() * u128::from(tally.images) / u128::from(tally.timed)) as u64;
        for (total, time) in
            [(&self.read, tally.read), (&self.decode, tally.decode), (&self.transform, tally.transform)]
        {
            total.fetch_add(scaled(time), Ordering::Relaxed);
        }
        self.read.fetch_add(tally.waited.as_nanos() as u64, Ordering::Relaxed);
        *tally = Tally { count: tally.count, ..Tally::default() };
    }

    pub(crate) fn stages(&self) -> Stages {
        let time = |total: &AtomicU64| Duration::from_nanos(total.load(Ordering::Relaxed));
        Stages {
            read: time(&self.read),
            decode: time(&self.decode),
            transform: time(&self.transform),
            slots: time(&self.slots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_times_are_extrapolated_to_all_images() {
        let totals = Totals::default();
        let mut tally = Tally { images: 10, ..Tally::default() };
        totals.add(&mut tally);
        assert_eq!((totals.stages(), tally.images), (Stages::default(), 10));
        // Of 40 images, every 16th is timed.
        assert_eq!((0..40).filter(|_| tally.begin()).collect::<Vec<_>>(), [0, 16, 32]);
        tally = Tally { images: 32, timed: 2, decode: Duration::from_micros(30), ..tally };
        totals.add(&mut tally);
        assert_eq!((totals.stages().decode, tally.images), (Duration::from_micros(480), 0));
    }
}
