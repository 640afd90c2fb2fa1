//! One pass over a shard that measures what can be read and notes the rest.

use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::image::sizes::Sizes;
use crate::inspect::stats::label_fault;
use crate::inspect::verify::{Bad, parse_index};
use crate::inspect::walk::{Found, Walk};
use crate::progress::Counter;
use crate::text;
use loaders::shard::index_path;
use loaders::{ImageSpec, Manifest, ShardManifest, example};
use std::fs;
use std::path::Path;

/// Bad records of a shard that are kept by name; the rest is counted, so that memory stays small.
const NAMED: usize = 1000;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub images: u64,
    /// Of grey images, and of those with more channels.
    pub grey: Moments,
    pub colour: Moments,
    /// Images of each class.
    pub counts: Vec<u64>,
    pub sizes: Sizes,
    pub skipped: u64,
    pub bad: Vec<Bad>,
}

impl Measured {
    /// Of no images, with a count for each class.
    pub fn new(classes: usize) -> Self {
        Self { counts: vec![0; classes], ..Self::default() }
    }

    /// Measures `shard` of the data set in `dir`.
    ///
    /// # Errors
    /// A shard that cannot be opened or read; whatever is wrong with single records is noted.
    pub fn shard(
        dir: &Path,
        shard: &ShardManifest,
        manifest: &Manifest,
        counter: &mut Counter<'_>,
    ) -> Result<Self, Error> {
        let path = dir.join(&shard.file);
        let mut walk = Walk::open(&path)?;
        let mut measured = Self::new(manifest.classes.len());
        let mut pixels = Pixels::default();
        let mut found_records = 0;
        while let Some(found) = walk.step()? {
            let (number, offset, lost) = (found.number, found.offset, found.lost);
            found_records = number + 1;
            let mut problem = measured.record(&found, manifest, &mut pixels).err();
            counter.tick();
            if lost && let Some((next, at)) = next_in_index(&path, offset, walk.len()) {
                walk.resume(next, at)?;
                measured.skipped += next.saturating_sub(found_records);
            } else if lost && shard.count > found_records {
                let behind = text::plural(shard.count - found_records, "record");
                problem = problem.map(|what| format!("{what}; so the {behind} behind it could not be found"));
                measured.skipped += shard.count - found_records;
                found_records = shard.count;
            }
            if let Some(what) = problem {
                measured.note(Bad { shard: shard.file.clone(), record: Some(number), offset: Some(offset), what });
            }
        }
        if found_records != shard.count {
            return Err(Error::input(
                &path,
                format!(
                    "holds {}, dataset.json says {}; check with `trireme data verify`",
                    text::plural(found_records, "record"),
                    shard.count
                ),
            ));
        }
        Ok(measured)
    }

    fn note(&mut self, bad: Bad) {
        self.skipped += 1;
        if self.bad.len() < NAMED {
            self.bad.push(bad);
        }
    }

    fn record(&mut self, found: &Found<'_>, manifest: &Manifest, pixels: &mut Pixels) -> Result<(), String> {
        let payload = found.payload.map_err(|e| e.to_string())?;
        let example = example::parse(payload).map_err(|e| e.to_string())?;
        let class = example
            .label
            .checked_sub(manifest.label_offset)
            .and_then(|label| usize::try_from(label).ok())
            .filter(|label| *label < self.counts.len());
        let Some(class) = class else {
            return Err(label_fault(example.label, manifest));
        };
        let (image, spec) = pixels.decode(&example)?;
        self.add(image, spec)?;
        self.counts[class] += 1;
        Ok(())
    }

    fn add(&mut self, image: &[u8], spec: ImageSpec) -> Result<(), String> {
        let moments = if spec.channels == 1 { &mut self.grey } else { &mut self.colour };
        moments.add(image, spec.channels as usize)?;
        self.sizes.add(spec);
        self.images += 1;
        Ok(())
    }

    /// Adds what was measured of another shard; the error says how their images differ.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        self.grey.merge(&other.grey)?;
        self.colour.merge(&other.colour)?;
        self.sizes.merge(&other.sizes);
        self.images += other.images;
        self.skipped += other.skipped;
        self.bad.extend(other.bad);
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        Ok(())
    }

    /// Mean and deviation per channel. Grey images among coloured ones count as colours, as in training.
    pub fn finish(&self) -> (Vec<f64>, Vec<f64>) {
        match self.colour.channels() {
            0 => self.grey.finish(),
            channels => {
                let mut all = self.grey.repeated(channels);
                // Both have so many channels, or none.
                match all.merge(&self.colour) {
                    Ok(()) => all.finish(),
                    Err(_) => self.colour.finish(),
                }
            }
        }
    }
}

/// Number and offset of the first record behind `offset`, as the index has them.
fn next_in_index(shard: &Path, offset: u64, len: u64) -> Option<(u64, u64)> {
    let text = fs::read_to_string(index_path(shard)).ok()?;
    let entries = parse_index(&text).ok()?;
    let next = entries.iter().position(|entry| entry.0 > offset && entry.0 < len)?;
    Some((next as u64, entries[next].0))
}
