//! One pass over a shard that measures every readable image and notes the bad records.

use super::bad::Bad;
use super::labels;
use super::shard_index::ShardIndex;
use super::walk::{Found, Position, Walk};
use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::image::sizes::Sizes;
use crate::progress::Counter;
use crate::text;
use loaders::{ImageSpec, Manifest, ShardManifest, example};
use std::path::Path;

/// Bad records of a shard that are kept by name; further ones are only counted, so that memory stays small.
const NAMED: usize = 1000;

/// Measures of some images.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub images: u64,
    /// Sums over grey images.
    grey: Moments,
    /// Sums over images with more channels.
    colour: Moments,
    /// Images of each class.
    pub counts: Vec<u64>,
    /// Images of no class.
    pub unlabelled: u64,
    pub sizes: Sizes,
    /// Records without a usable image.
    pub skipped: u64,
    pub bad: Vec<Bad>,
}

impl Measured {
    /// Measures of no images, with a count for each class.
    pub fn new(classes: usize) -> Self {
        Self { counts: vec![0; classes], ..Self::default() }
    }

    /// Measures `shard` of the data set in `dir`.
    ///
    /// # Errors
    /// A shard that cannot be opened or read, or that holds another number of records than in `dataset.json`; faults of single
    /// records are noted.
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
        let mut records = 0;
        while let Some(found) = walk.step()? {
            let (at, bad_length) = (found.at, found.bad_length);
            records = at.record + 1;
            let mut fault = measured.record(&found, manifest, &mut pixels).err();
            counter.tick();
            if bad_length {
                records = measured.resume(&path, &mut walk, at, shard.count, &mut fault)?;
            }
            if let Some(what) = fault {
                measured.note(Bad::record(&shard.file, at, what));
            }
        }
        if records == shard.count {
            return Ok(measured);
        }
        let (found, expected) = (text::plural(records, "record"), shard.count);
        Err(Error::input(
            &path,
            format!("holds {found}, dataset.json says {expected}; check with `trireme data verify`"),
        ))
    }

    /// Continues behind the record `at`, whose length cannot be trusted, and counts the records that it hides; returns the
    /// number of records up to there. Without an index it hides all that follow, which is added to `fault`.
    fn resume(
        &mut self,
        path: &Path,
        walk: &mut Walk,
        at: Position,
        count: u64,
        fault: &mut Option<String>,
    ) -> Result<u64, Error> {
        let records = at.record + 1;
        let next = ShardIndex::read(path).ok().and_then(|index| index.next(at.offset, walk.length()));
        if let Some(next) = next {
            walk.resume(next)?;
            self.skipped += next.record.saturating_sub(records);
            return Ok(records);
        }
        if count <= records {
            return Ok(records);
        }
        let behind = text::plural(count - records, "record");
        *fault = fault.take().map(|what| format!("{what}; so the {behind} behind it could not be found"));
        self.skipped += count - records;
        Ok(count)
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
        let classes = labels::classes(&example, manifest)?;
        let (image, spec) = pixels.decode(&example)?;
        self.add(image, spec)?;
        self.unlabelled += u64::from(classes.is_empty());
        classes.into_iter().for_each(|class| self.counts[class] += 1);
        Ok(())
    }

    fn add(&mut self, image: &[u8], spec: ImageSpec) -> Result<(), String> {
        let moments = if spec.channels == 1 { &mut self.grey } else { &mut self.colour };
        moments.add(image, spec.channels as usize)?;
        self.sizes.add(spec);
        self.images += 1;
        Ok(())
    }

    /// Adds the measures of another shard; the error says how their images differ.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        self.grey.merge(&other.grey)?;
        self.colour.merge(&other.colour)?;
        self.sizes.merge(&other.sizes);
        self.images += other.images;
        self.unlabelled += other.unlabelled;
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
