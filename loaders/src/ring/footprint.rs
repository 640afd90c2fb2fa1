//! The memory that a loader takes, computed before it starts.

use std::fmt;

use crate::error::Error;
use crate::memory;
use crate::ring::options::Options;
use crate::ring::pixel_format::PixelFormat;
use crate::storage::read_plan::ReadPlan;
use crate::storage::split::Split;

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
