//! How a loader runs.

use crate::ring::division::Division;
use crate::storage::io::Io;
use crate::storage::read_plan::{ReadOptions, ReadPlan};

/// Values that are worth a piece of their own: taking one costs about as much as filling a few.
const PIECE: usize = 1 << 12;

/// Threads of a loader at most: with many more the system may refuse the next one, or run out of memory.
pub const MOST_THREADS: usize = 1024;

/// Default of [`Options::buffer`]: 256 MiB.
pub const BUFFER: usize = 256 << 20;

/// How a loader runs; only `skip` changes its batches.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Threads that fill batches; 0 counts as 1.
    pub threads: usize,
    /// Batches in memory at once, those held by the consumer included. 0: with one thread 3, with several 4, and more, up to threads + 2,
    /// where a batch has fewer pieces than there are threads. Where each thread fills batches of its own, and requests the records of the
    /// next one meanwhile, 2 * threads + 2.
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

    /// Batches in memory at once, of so many pieces each.
    pub(crate) fn slot_count(&self, plan: &ReadPlan, pieces: usize) -> usize {
        let threads = self.threads.max(1);
        match self.slots {
            0 if plan.looks_ahead() => 2 * threads + 2,
            0 => enough(threads, pieces),
            slots => slots,
        }
    }

    /// How batches with images of so many values are divided among threads: several pieces each, so that none waits long for the last one.
    /// Not where the records of each batch are requested ahead: those of a whole batch are requested earlier, and in longer reads.
    pub(crate) fn division(&self, plan: &ReadPlan, values: usize) -> Division {
        let pieces = if plan.looks_ahead() || self.threads <= 1 { 1 } else { 4 * self.threads };
        Division { pieces, samples: PIECE.div_ceil(values.max(1)) }
    }
}

/// Batches of so many pieces that keep all threads at work: those of which a thread has a piece, one that is beginning or ending, one that
/// is ready and one that the consumer holds.
fn enough(threads: usize, pieces: usize) -> usize {
    (threads.div_ceil(pieces) + 3).min(threads + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_keep_threads_at_work() {
        let counts = [(1, 1), (2, 8), (8, 32), (16, 64), (16, 4), (16, 1), (2, 1)].map(|(t, p)| enough(t, p));
        assert_eq!(counts, [3, 4, 4, 4, 7, 18, 4]);
    }
}
