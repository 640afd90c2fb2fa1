//! `dataset.json` of shards that were scanned: made from them, or compared with them.

use super::scan::Scanned;
use super::shard_files::ShardFile;
use super::walk::Position;
use crate::error::Error;
use crate::image::moments::Moments;
use crate::text;
use loaders::dataset::{MANIFEST, VERSION};
use loaders::regular;
use loaders::{Manifest, ShardManifest, SplitManifest};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A highest label above this is no class.
const MAX_CLASSES: i64 = 1 << 20;

/// The manifest of the shards: splits, classes, mean and deviation.
pub(super) fn make(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &[Scanned],
    names: Option<Vec<String>>,
) -> Result<Manifest, Error> {
    one_label(dir, shards, scanned)?;
    let (classes, label_offset) = make_classes(dir, shards, scanned, names)?;
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
    Ok(Manifest { version: VERSION, multi_label: false, classes, label_offset, mean, std, splits })
}

/// Refuses records of none or several labels: which classes there are, only their own `dataset.json` says.
fn one_label(dir: &Path, shards: &[ShardFile], scanned: &[Scanned]) -> Result<(), Error> {
    let several = shards.iter().zip(scanned).find_map(|(shard, scanned)| Some((shard, scanned.several?)));
    let Some((shard, Position { record, offset })) = several else { return Ok(()) };
    let what = "an image with no label, or several; dataset.json says which classes they are: copy it from where the shards were made";
    Err(Error::Record { shard: dir.join(&shard.file), record, offset, what: what.into() })
}

/// The list of class names that TensorFlow Datasets write beside shards, if it is in `dir`.
pub(super) fn class_names(dir: &Path) -> Result<Option<Vec<String>>, Error> {
    let path = dir.join("label.labels.txt");
    match regular::read_to_string(&path) {
        Ok(text) => {
            Ok(Some(text::without_mark(&text).lines().filter(|line| !line.is_empty()).map(String::from).collect()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path, e)),
    }
}

/// Class names and label offset from all labels seen, and from a list of names.
fn make_classes(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &[Scanned],
    listed: Option<Vec<String>>,
) -> Result<(Vec<String>, i64), Error> {
    let names = names_by_label(dir, shards, scanned)?;
    let (Some(&lowest), Some(&highest)) = (names.keys().next(), names.keys().next_back()) else {
        return Err(Error::input(dir, "its shards hold no records"));
    };
    if let Some(listed) = listed {
        if highest < listed.len() as i64 {
            return Ok((listed, 0));
        }
        let what =
            format!("holds the label {highest}, label.labels.txt only {} names; is it of this data set?", listed.len());
        return Err(Error::input(dir, what));
    }
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
