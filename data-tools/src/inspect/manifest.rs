//! `dataset.json` of shards that were scanned: made from them, or compared with them.

use super::scan::Scanned;
use super::shard_files::ShardFile;
use crate::error::Error;
use crate::image::moments::Moments;
use loaders::dataset::{MANIFEST, VERSION};
use loaders::{Manifest, ShardManifest, SplitManifest};
use std::collections::BTreeMap;
use std::path::Path;

/// A highest label above this is no class.
const MAX_CLASSES: i64 = 1 << 20;

/// The manifest of the shards: splits, classes, mean and deviation.
pub(super) fn make(dir: &Path, shards: &[ShardFile], scanned: &[Scanned]) -> Result<Manifest, Error> {
    let (classes, label_offset) = make_classes(dir, shards, scanned)?;
    let mut total = Moments::default();
    let mut splits: BTreeMap<String, SplitManifest> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        total.merge_shard(&scanned.moments, &dir.join(&shard.file))?;
        let count = scanned.entries.len() as u64;
        let split = splits.entry(shard.split.clone()).or_default();
        split.count += count;
        split.shards.push(ShardManifest { file: shard.file.clone(), count, bytes: scanned.bytes });
    }
    let (mean, std) = total.finish();
    Ok(Manifest { version: VERSION, classes, label_offset, mean, std, splits })
}

/// Class names and label offset from all labels seen.
fn make_classes(dir: &Path, shards: &[ShardFile], scanned: &[Scanned]) -> Result<(Vec<String>, i64), Error> {
    let names = names_by_label(dir, shards, scanned)?;
    let (Some(&lowest), Some(&highest)) = (names.keys().next(), names.keys().next_back()) else {
        return Err(Error::input(dir, "its shards hold no records"));
    };
    // TensorFlow's ImageNet scripts label from 1. A lowest label above 1 only means that class 0 has no samples.
    let offset = i64::from(lowest == 1);
    let classes = (offset..=highest).map(|label| match names.get(&label) {
        Some(name) if !name.is_empty() => name.to_string(),
        _ => label.to_string(),
    });
    Ok((classes.collect(), offset))
}

/// The labels that occur, each with its first name that is not empty.
fn names_by_label<'a>(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &'a [Scanned],
) -> Result<BTreeMap<i64, &'a str>, Error> {
    let mut names: BTreeMap<i64, &str> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        for (&label, seen) in &scanned.labels {
            if !(0..=MAX_CLASSES).contains(&label) {
                return Err(Error::Record {
                    shard: dir.join(&shard.file),
                    record: seen.first.record,
                    offset: seen.first.offset,
                    what: format!("label {label}; expected a class from 0 to {MAX_CLASSES} in image/class/label"),
                });
            }
            let name = names.entry(label).or_default();
            if name.is_empty() {
                *name = &seen.text;
            }
        }
    }
    Ok(names)
}

/// Refuses a `dataset.json` whose counts differ from those of the scanned shards.
pub(super) fn compare(dir: &Path, manifest: &Manifest, scanned: &[Scanned]) -> Result<(), Error> {
    let listed = manifest.splits.values().flat_map(|s| &s.shards);
    for (listed, found) in listed.zip(scanned) {
        let count = found.entries.len() as u64;
        if (listed.count, listed.bytes) != (count, found.bytes) {
            return Err(Error::input(
                &dir.join(MANIFEST),
                format!(
                    "says {} records and {} bytes in {}; the shard has {count} and {}: fetch the shard again, \
                     or remove dataset.json to have it made from the shards",
                    listed.count, listed.bytes, listed.file, found.bytes
                ),
            ));
        }
    }
    Ok(())
}
