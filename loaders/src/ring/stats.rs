//! What a loader has delivered, and where its time went.

use std::ops::Sub;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
