//! What a loader has delivered, and where its time and its threads' time went.

use std::ops::Sub;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sync::AtomicU64;

/// Time of all loader threads together, by what they did; the first three are estimated from every 16th image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// Finding, reading and checking records.
    pub read: Duration,
    /// Decoding.
    pub decode: Duration,
    /// Transforms.
    pub transform: Duration,
    /// Waiting for a free slot: the consumer was slower.
    pub slots: Duration,
}

/// What a loader has delivered so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderStats {
    /// How long the consumer waited for batches.
    pub wait: Duration,
    /// Images handed out.
    pub images: u64,
    /// Bytes of their records, framing included.
    pub bytes: u64,
    /// Samples left out because they could not be used.
    pub skipped: u64,
    /// Batches handed out.
    pub batches: u64,
    /// Sum over these batches of how many were ready when each was requested.
    pub queue: u64,
    /// What the threads spent their time on.
    pub stages: Stages,
}

impl Sub for LoaderStats {
    type Output = Self;

    /// What was delivered since `earlier`.
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
    /// How many batches were ready when one was requested, on average.
    pub fn depth(&self) -> f64 {
        self.queue as f64 / self.batches.max(1) as f64
    }
}

/// One image in so many is timed: reading the clock for each one would cost more than some transforms.
const SAMPLED: u64 = 16;

/// Times of all threads of a loader, in nanoseconds; threads add to them after each piece of a batch.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    read: AtomicU64,
    decode: AtomicU64,
    transform: AtomicU64,
    slots: AtomicU64,
}

/// One thread's times since it last added them to the totals, but for `count`, of the images that were timed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Images since the thread began.
    pub count: u64,
    pub images: u64,
    pub timed: u64,
    pub read: Duration,
    pub decode: Duration,
    pub transform: Duration,
    /// Waiting for records that reader threads fetch, for all images.
    pub waited: Duration,
}

impl Tally {
    /// Counts an image; says whether it is one of those that are timed.
    pub(crate) fn begin(&mut self) -> bool {
        let timed = self.count.is_multiple_of(SAMPLED);
        (self.count, self.images) = (self.count + 1, self.images + 1);
        timed
    }

    /// Adds one image's times.
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

    /// Adds a thread's tally, scaled to all its images, and clears it. If no image was timed the tally is kept for the next call.
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

    /// The times so far.
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
    fn tallies_count_for_all_images() {
        let totals = Totals::default();
        let mut tally = Tally { images: 10, ..Tally::default() };
        totals.add(&mut tally);
        assert_eq!((totals.stages(), tally.images), (Stages::default(), 10));
        // of 40 images in pieces of 8 the first, the 17th and the 33rd are timed
        assert_eq!((0..40).filter(|_| tally.begin()).collect::<Vec<_>>(), [0, 16, 32]);
        tally = Tally { images: 32, timed: 2, decode: Duration::from_micros(30), ..tally };
        totals.add(&mut tally);
        assert_eq!((totals.stages().decode, tally.images), (Duration::from_micros(480), 0));
    }
}
