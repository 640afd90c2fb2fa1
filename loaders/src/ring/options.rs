//! The options of a loader, and its memory use.

use std::fmt;

use crate::error::Error;
use crate::memory;
use crate::ring::batch::PixelFormat;
use crate::ring::shared::Division;
use crate::storage::dataset::Split;
use crate::storage::read_plan::{Io, ReadOptions, ReadPlan};

/// Minimum number of values in a piece. Taking a piece costs about as much as filling a few values.
const PIECE: usize = 1 << 12;

/// Maximum number of loader threads. With many more, the system may refuse to start threads, or run out of memory.
pub const MOST_THREADS: usize = 1024;

/// Default of [`Options::buffer`]: 256 MiB.
pub const BUFFER: usize = 256 << 20;

/// The options of a loader. Only `skip` changes its batches.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of threads that fill batches. 0 counts as 1.
    pub threads: usize,
    /// Number of batches in memory at the same time, including batches held by the consumer.
    ///
    /// With 0, the loader chooses: 3 for one thread and 4 for more threads. If a batch has fewer pieces than there are
    /// threads, it uses more slots, up to threads + 2. If each thread fills whole batches and requests the records of
    /// its next batch in advance, it uses 2 * threads + 2.
    pub slots: usize,
    /// Nice value of the threads, from 0 (unchanged) to 19 (lowest priority).
    pub nice: i32,
    pub io: Io,
    /// Number of shards that the order uses at the same time. 0 means all shards.
    pub open: usize,
    /// Maximum number of bytes for shards that are read into memory.
    pub buffer: usize,
    /// If true, a record that cannot be used is left out of its batch. If false, it ends the loader with an error.
    pub skip: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, slots: 0, nice: 0, io: Io::Auto, open: 0, buffer: BUFFER, skip: false }
    }
}

impl Options {
    /// Returns the options that concern reading.
    pub(crate) fn reading(&self) -> ReadOptions {
        ReadOptions { io: self.io, open: self.open, buffer: self.buffer }
    }

    /// Returns the number of slots for batches with `pieces` pieces.
    pub(crate) fn slot_count(&self, plan: &ReadPlan, pieces: usize) -> usize {
        let threads = self.threads.max(1);
        match self.slots {
            0 if plan.looks_ahead() => 2 * threads + 2,
            0 => slots_to_stay_busy(threads, pieces),
            slots => slots,
        }
    }

    /// Decides how batches are divided among threads, for images with `values` values. A batch has up to four pieces
    /// per thread, so that threads do not wait long for the last piece. Batches are not divided if records are
    /// requested ahead: whole batches can be requested earlier, and with longer reads.
    pub(crate) fn division(&self, plan: &ReadPlan, values: usize) -> Division {
        let pieces = if plan.looks_ahead() || self.threads <= 1 { 1 } else { 4 * self.threads };
        Division { pieces, samples: PIECE.div_ceil(values.max(1)) }
    }
}

/// Returns the number of batches that keeps all threads busy. It counts the batches that threads are working on, one
/// that is being started or completed, one that is ready, and one that the consumer holds.
fn slots_to_stay_busy(threads: usize, pieces: usize) -> usize {
    (threads.div_ceil(pieces) + 3).min(threads + 2)
}

/// Memory use of a loader in bytes. It depends neither on the size of the data set nor on the number of epochs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// How records are read and why, for the log.
    pub access: String,
    /// Memory for the batches of all slots.
    pub batches: u64,
    /// Memory for shards or records that are read into memory. For records, this assumes their mean size.
    pub records: u64,
}

impl Footprint {
    /// Computes the memory for batches of at most `batch` images with `values` values in this format.
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
        let batches = product([
            options.slot_count(&plan, options.division(&plan, values).piece_count(batch)) as u64,
            batch as u64,
            image,
        ]);
        let mean = split.bytes().div_ceil(split.len().max(1));
        let fetched = product([2 * options.threads.max(1) as u64, batch as u64, mean]);
        Ok(Self { batches, records: if plan.fetches() { fetched } else { plan.loaded }, access: plan.text })
    }

    /// Returns the memory of this many loaders.
    pub fn times(self, loaders: u64) -> Self {
        let [batches, records] = [self.batches, self.records].map(|bytes| bytes.saturating_mul(loaders));
        Self { batches, records, ..self }
    }

    /// Returns an error if the machine has less memory than a loader with these options needs.
    pub fn check(&self, options: &Options) -> Result<(), Error> {
        let slots = match options.slots {
            0 => String::new(),
            slots => format!("fewer slots (loader.slots = {slots}), "),
        };
        let cure =
            format!("{slots}smaller images in the list of transforms, a smaller batch, or more ranks on other nodes");
        memory::check("the loader", self.bytes(), &cure)
    }

    pub fn bytes(&self) -> u64 {
        self.batches.saturating_add(self.records)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{}; {:.1} MiB", self.access, mib(self.bytes()))?;
        if self.records > 0 {
            write!(f, ", {:.1} MiB of it for records", mib(self.records))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_count_keeps_all_threads_busy() {
        let counts =
            [(1, 1), (2, 8), (8, 32), (16, 64), (16, 4), (16, 1), (2, 1)].map(|(t, p)| slots_to_stay_busy(t, p));
        assert_eq!(counts, [3, 4, 4, 4, 7, 18, 4]);
    }
}
