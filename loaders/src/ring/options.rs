//! How a loader runs.

use crate::storage::io::Io;
use crate::storage::read_plan::{ReadOptions, ReadPlan};

/// Default of [`Options::buffer`]: 256 MiB.
pub const BUFFER: usize = 256 << 20;

/// How a loader runs; only `skip` changes its batches.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Threads that fill batches; 0 counts as 1.
    pub threads: usize,
    /// Batches in memory at once, those held by the consumer included. 0 = threads + 2, and as many as threads more if each thread
    /// requests the records of its next batch while it fills one.
    pub slots: usize,
    /// Nice value of the threads, 0 (unchanged) to 19 (lowest priority).
    pub nice: i32,
    /// How records are read.
    pub io: Io,
    /// Shards that the order has in use at once; 0: all of them.
    pub open: usize,
    /// Bytes that shards read into memory may take.
    pub buffer: usize,
    /// Whether a record that cannot be used is left out of its batch, instead of ending the loader.
    pub skip: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, slots: 0, nice: 0, io: Io::Auto, open: 0, buffer: BUFFER, skip: false }
    }
}

impl Options {
    /// The options that concern reading.
    pub(crate) fn reading(&self) -> ReadOptions {
        ReadOptions { io: self.io, open: self.open, buffer: self.buffer }
    }

    /// Batches in memory at once.
    pub(crate) fn slot_count(&self, plan: &ReadPlan) -> usize {
        let threads = self.threads.max(1);
        match self.slots {
            0 if plan.looks_ahead() => 2 * threads + 2,
            0 => threads + 2,
            slots => slots,
        }
    }
}
