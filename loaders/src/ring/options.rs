//! How a loader runs, and how much memory it takes.

use std::fmt;

use crate::error::Error;
use crate::memory;
use crate::ring::batch::PixelFormat;
use crate::ring::shared::Division;
use crate::storage::dataset::Split;
use crate::storage::read_plan::{Io, ReadOptions, ReadPlan};

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

/// Bytes of a loader that depend on neither the size of the data set nor the number of epochs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// How records are read, and why, for the log.
    pub access: String,
    /// Batches in flight.
    pub batches: u64,
    /// Shards or records read into memory; for records, their mean size is used.
    pub records: u64,
}

impl Footprint {
    /// For batches of at most `batch` images of so many `values` in this format.
    pub fn new(
        split: &Split,
        options: &Options,
        batch: usize,
        values: usize,
        format: &PixelFormat,
    ) -> Result<Self, Error> {
        let plan = ReadPlan::new(split, &options.reading())?;
        let product = |factors: [u64; 3]| factors.into_iter().fold(1, u64::saturating_mul);
        let image = (format.bytes(values) + size_of::<u32>()) as u64;
        let batches =
            product([options.slot_count(&plan, options.division(&plan, values).of(batch)) as u64, batch as u64, image]);
        let mean = split.bytes().div_ceil(split.len().max(1));
        let fetched = product([2 * options.threads.max(1) as u64, batch as u64, mean]);
        Ok(Self { batches, records: if plan.fetches() { fetched } else { plan.loaded }, access: plan.text })
    }

    /// Of so many loaders like this one.
    pub fn times(self, loaders: u64) -> Self {
        let [batches, records] = [self.batches, self.records].map(|bytes| bytes.saturating_mul(loaders));
        Self { batches, records, ..self }
    }

    /// Fails where the machine has less memory, for a loader with these options.
    pub fn check(&self, options: &Options) -> Result<(), Error> {
        let slots = match options.slots {
            0 => String::new(),
            slots => format!("fewer slots (loader.slots = {slots}), "),
        };
        let cure =
            format!("{slots}smaller images in the list of transforms, a smaller batch, or more ranks on other nodes");
        memory::check("what the loader keeps in memory", self.bytes(), &cure)
    }

    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.batches.saturating_add(self.records)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{}; {:.1} MiB", self.access, mib(self.bytes()))?;
        if self.records > 0 {
            write!(f, ", {:.1} of them records", mib(self.records))?;
        }
        Ok(())
    }
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
