//! How fast a loader is by itself: what `trireme bench loader` reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::dataset::Dataset;
use crate::error::Error;
use crate::loader::{Loader, Options};
use crate::order::TrainOrder;
use crate::record::masked_crc32c;
use crate::transform::Pipeline;

/// The loader's rates over whole epochs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Images per second: the median of all epochs after the first (of the only one, if so).
    pub img_per_s: f64,
    /// Images per second of the first epoch, with threads starting and pages not yet in memory.
    pub img_per_s_first: f64,
    /// Bytes of records per second, framing included, over all epochs.
    pub bytes_per_s: f64,
    /// Seconds that the consumer, which does nothing else, waited over all epochs.
    pub wait_s: f64,
}

/// Loads `epochs` (at least 1) epochs of a split in batches of `batch` by `threads` threads, and drops
/// each batch as it comes.
pub fn run(
    dir: &Path,
    split: &str,
    transforms: &[String],
    batch: usize,
    threads: usize,
    epochs: u32,
) -> Result<Rate, Error> {
    let dataset = Dataset::open(dir)?;
    let split = Arc::new(dataset.split(split)?);
    let pipeline = Pipeline::new(transforms, split.images()?, &dataset.manifest, 1)?;
    let epochs = epochs.max(1);
    let order = TrainOrder::new(1, split.len(), batch.max(1), 1, 0..1, (0, 0), epochs);
    let images = split.len() as f64;
    let options = Options { threads, ..Options::default() };
    let start = Instant::now();
    let mut loader = Loader::start(split, pipeline, Box::new(order), options)?;
    let mut rates = Vec::with_capacity(epochs as usize);
    let (mut epoch, mut since) = (0, start);
    while let Some(batch) = loader.next()? {
        if batch.epoch() != epoch {
            rates.push(images / since.elapsed().as_secs_f64());
            (epoch, since) = (batch.epoch(), Instant::now());
        }
    }
    rates.push(images / since.elapsed().as_secs_f64());
    let stats = loader.stats();
    Ok(Rate {
        img_per_s: median(&mut rates[1.min(epochs as usize - 1)..]),
        img_per_s_first: rates[0],
        bytes_per_s: stats.bytes as f64 / start.elapsed().as_secs_f64(),
        wait_s: stats.wait.as_secs_f64(),
    })
}

/// Nanoseconds per record that the checksum of the payloads takes, in one pass over a split in order.
pub fn checksum_ns(dir: &Path, split: &str) -> Result<f64, Error> {
    let split = Dataset::open(dir)?.split(split)?;
    let mut payloads = Vec::new();
    for place in 0..split.shards().len() {
        let shard = split.shard(place)?;
        for record in 0..shard.len() {
            payloads.push(shard.record(record)?);
        }
    }
    let start = Instant::now();
    for payload in &payloads {
        std::hint::black_box(masked_crc32c(payload));
    }
    Ok(start.elapsed().as_nanos() as f64 / payloads.len().max(1) as f64)
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    if rates.len() % 2 == 1 { rates[middle] } else { (rates[middle - 1] + rates[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
