//! Makes foreign TFRecords readable: an index beside each shard and, where there is none, a
//! `dataset.json`.
//!
//! Shards are files named `SPLIT-00000-of-01024`, with or without `.tfrecord`, or `SPLIT.tfrecord`;
//! their records use the keys of TensorFlow's ImageNet scripts.

use crate::error::Error;
use crate::image::moments::{self, Moments};
use crate::inspect::scan::{self, Scanned};
use crate::kinds::reader::input;
use crate::progress::Progress;
use crate::{pool, text};
use loaders::dataset::{MANIFEST, VERSION};
use loaders::{Manifest, ShardManifest, SplitManifest, shard};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A highest label beyond this is taken for something else than a class.
const MAX_CLASSES: i64 = 1 << 20;

/// What was indexed.
#[derive(Debug, Clone)]
pub struct Indexed {
    /// The data set's folder.
    pub dir: PathBuf,
    /// Indexes written.
    pub shards: u64,
    /// Records found.
    pub records: u64,
    /// `dataset.json`, as it was or as it was made.
    pub manifest: Manifest,
    /// True where `dataset.json` was made.
    pub made_manifest: bool,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// One shard file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shard {
    split: String,
    number: u64,
    of: u64,
    file: String,
}

/// Writes `<shard>.idx` beside each shard in `dir` and, if there is no `dataset.json`, makes it:
/// classes up to the highest label, `label_offset` 1 where labels start at 1, names from
/// `image/class/text`, mean and deviation of `train` measured.
///
/// # Errors
/// No shards; a set of shards that is not complete; a damaged record; a negative or absurd label; a
/// `dataset.json` that says other counts than the shards hold. Nothing is written before every
/// shard has been read.
pub fn index(dir: &Path) -> Result<Indexed, Error> {
    let started = Instant::now();
    input::check_dir(dir, "expected a folder with TFRecord shards")?;
    let known = match dir.join(MANIFEST).exists() {
        true => Some(Manifest::read(dir)?),
        false => None,
    };
    let shards = match &known {
        Some(manifest) => listed(manifest),
        None => discover(dir)?,
    };
    let measured = measured_split(&shards);
    let progress = Progress::new("indexing", None, true);
    let scanned = pool::run(shards.len(), 0, |i| {
        let pixels = known.is_none() && shards[i].split == measured;
        let path = dir.join(&shards[i].file);
        scan::scan(&path, pixels, &mut progress.counter())
    })?;
    drop(progress);
    let manifest = match known {
        Some(_) => None,
        None => Some(make_manifest(dir, &shards, &scanned)?),
    };
    for (shard, scanned) in shards.iter().zip(&scanned) {
        shard::write_index(&dir.join(&shard.file), &scanned.entries)?;
    }
    let made_manifest = manifest.is_some();
    let manifest = match (manifest, known) {
        (Some(made), _) => {
            made.write(dir)?;
            made
        }
        (None, Some(known)) => {
            agree(dir, &known, &scanned)?;
            known
        }
        (None, None) => return Err(Error::Panic("neither read nor made a manifest".into())),
    };
    Ok(Indexed {
        dir: dir.to_path_buf(),
        shards: shards.len() as u64,
        records: scanned.iter().map(|s| s.entries.len() as u64).sum(),
        manifest,
        made_manifest,
        elapsed: started.elapsed(),
    })
}

/// The shards that `dataset.json` lists, in its order.
fn listed(manifest: &Manifest) -> Vec<Shard> {
    let each = manifest.splits.iter().flat_map(|(name, split)| {
        let of = split.shards.len() as u64;
        (0..).zip(&split.shards).map(move |(number, shard)| Shard {
            split: name.clone(),
            number,
            of,
            file: shard.file.clone(),
        })
    });
    each.collect()
}

/// The shards in `dir` by their names, complete and in order.
fn discover(dir: &Path) -> Result<Vec<Shard>, Error> {
    let failed = |e| Error::io("read", dir, e);
    let mut shards = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A name that is not Unicode cannot match.
        let name = entry.file_name();
        shards.extend(name.to_str().and_then(parse_name));
    }
    if shards.is_empty() {
        return Err(Error::input(
            dir,
            "holds no shards; expected files named like train-00000-of-00016.tfrecord (with or without .tfrecord)",
        ));
    }
    shards.sort_by(|a, b| (&a.split, a.of, a.number, &a.file).cmp(&(&b.split, b.of, b.number, &b.file)));
    for split in shards.chunk_by(|a, b| a.split == b.split) {
        check_complete(dir, split)?;
    }
    Ok(shards)
}

/// `SPLIT-<digits>-of-<digits>[.tfrecord[s]]` or `SPLIT.tfrecord[s]`.
fn parse_name(file: &str) -> Option<Shard> {
    let stem = file.strip_suffix(".tfrecord").or_else(|| file.strip_suffix(".tfrecords"));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())?;
    let numbered = |stem: &str| {
        let (rest, of) = stem.rsplit_once("-of-")?;
        let (split, number) = rest.rsplit_once('-')?;
        Some((split.to_string(), digits(number)?, digits(of)?))
    };
    let (split, number, of) = match numbered(stem.unwrap_or(file)) {
        Some(parts) => parts,
        None => (stem?.to_string(), 0, 1),
    };
    (!split.is_empty()).then(|| Shard { split, number, of, file: file.to_string() })
}

/// Refuses a split with a shard missing or twice; `split` is sorted by (of, number).
fn check_complete(dir: &Path, split: &[Shard]) -> Result<(), Error> {
    let (first, of) = (&split[0], split[0].of);
    if let Some(other) = split.iter().find(|s| s.of != of) {
        return Err(Error::input(
            dir,
            format!("{} and {} are of different sets; keep one set of shards in the folder", first.file, other.file),
        ));
    }
    let odd = (0..).zip(split).find(|(i, s)| s.number != *i);
    match odd {
        None if split.len() as u64 == of => Ok(()),
        Some((i, s)) if s.number < i || s.number >= of => Err(Error::input(
            &dir.join(&s.file),
            format!("is there twice, or beyond the {of} shards that its name tells of"),
        )),
        odd => {
            let missing = odd.map_or(split.len() as u64, |(i, _)| i);
            Err(Error::input(
                dir,
                format!(
                    "shard {missing} of {of} of the split {} is missing ({} are there, such as {}); fetch it",
                    first.split,
                    split.len(),
                    first.file
                ),
            ))
        }
    }
}

/// The split that mean and deviation are measured on: `train`, else the first.
fn measured_split(shards: &[Shard]) -> String {
    let train = shards.iter().find(|s| s.split == "train");
    let chosen = train.or(shards.first());
    chosen.map(|s| s.split.clone()).unwrap_or_default()
}

fn make_manifest(dir: &Path, shards: &[Shard], scanned: &[Scanned]) -> Result<Manifest, Error> {
    let (classes, label_offset) = make_classes(dir, shards, scanned)?;
    let mut total = Moments::default();
    let mut splits: BTreeMap<String, SplitManifest> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        moments::merge(&mut total, &scanned.moments, &dir.join(&shard.file))?;
        let count = scanned.entries.len() as u64;
        let split = splits.entry(shard.split.clone()).or_default();
        split.count += count;
        split.shards.push(ShardManifest { file: shard.file.clone(), count, bytes: scanned.bytes });
    }
    let (mean, std) = total.finish();
    Ok(Manifest { version: VERSION, classes, label_offset, mean, std, splits })
}

/// Class names and label offset from all labels seen.
fn make_classes(dir: &Path, shards: &[Shard], scanned: &[Scanned]) -> Result<(Vec<String>, i64), Error> {
    let mut names: BTreeMap<i64, &str> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        for (&label, seen) in &scanned.labels {
            if !(0..=MAX_CLASSES).contains(&label) {
                return Err(Error::Record {
                    shard: dir.join(&shard.file),
                    record: seen.record,
                    offset: seen.offset,
                    what: format!("label {label}; expected a class from 0 to {MAX_CLASSES} in image/class/label"),
                });
            }
            let name = names.entry(label).or_default();
            if name.is_empty() {
                *name = &seen.text;
            }
        }
    }
    let (Some(&lowest), Some(&highest)) = (names.keys().next(), names.keys().next_back()) else {
        return Err(Error::input(dir, "its shards hold no records"));
    };
    // Labels 1..K are ImageNet's custom. A lowest label above 1 says nothing: then class 0 has no
    // samples.
    let offset = i64::from(lowest == 1);
    let classes = (offset..=highest).map(|label| match names.get(&label) {
        Some(name) if !name.is_empty() => name.to_string(),
        _ => label.to_string(),
    });
    Ok((classes.collect(), offset))
}

/// Refuses a `dataset.json` that says something else than the shards, which have been indexed by
/// now.
fn agree(dir: &Path, manifest: &Manifest, scanned: &[Scanned]) -> Result<(), Error> {
    let said = manifest.splits.values().flat_map(|s| &s.shards);
    for (said, is) in said.zip(scanned) {
        let count = is.entries.len() as u64;
        if (said.count, said.bytes) != (count, is.bytes) {
            return Err(Error::input(
                &dir.join(MANIFEST),
                format!(
                    "says {} records and {} bytes in {}; the shard has {count} and {}: fetch the shard again, \
                     or remove dataset.json to have it made from the shards",
                    said.count, said.bytes, said.file, is.bytes
                ),
            ));
        }
    }
    Ok(())
}

impl Indexed {
    /// The same for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let splits: serde_json::Map<String, serde_json::Value> = self
            .manifest
            .splits
            .iter()
            .map(|(name, s)| (name.clone(), json!({"count": s.count, "shards": s.shards.len()})))
            .collect();
        json!({
            "dir": self.dir.display().to_string(),
            "shards": self.shards,
            "records": self.records,
            "made_manifest": self.made_manifest,
            "classes": self.manifest.classes.len(),
            "label_offset": self.manifest.label_offset,
            "splits": splits,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for Indexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} in {} indexed in {:.2} s",
            self.dir.display(),
            text::plural(self.records, "record"),
            text::plural(self.shards, "shard"),
            self.elapsed.as_secs_f64()
        )?;
        if self.made_manifest {
            write!(
                f,
                "; dataset.json made: {}, labels start at {}",
                text::classes(self.manifest.classes.len()),
                self.manifest.label_offset
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards() {
        let parts = |file| parse_name(file).map(|s| (s.split, s.number, s.of));
        let is = |split: &str, number, of| Some((split.to_string(), number, of));
        assert_eq!(parts("train-00003-of-01024"), is("train", 3, 1024));
        assert_eq!(parts("validation-00000-of-00128.tfrecord"), is("validation", 0, 128));
        assert_eq!(parts("my-set-train-1-of-2.tfrecords"), is("my-set-train", 1, 2));
        assert_eq!(parts("train.tfrecord"), is("train", 0, 1));
        assert_eq!(parts("train-00003-of-01024.idx"), None);
        assert_eq!(parts("train-00003-of-00016.tfrecord.idx"), None);
        assert_eq!(parts("train-x-of-2"), None);
        assert_eq!(parts("-0-of-2"), None);
        assert_eq!(parts("dataset.json"), None);
    }

    #[test]
    fn a_set_of_shards_must_be_complete() {
        let shards = |files: &[&str]| -> Vec<Shard> {
            let mut shards: Vec<Shard> = files.iter().filter_map(|f| parse_name(f)).collect();
            shards.sort_by_key(|s| (s.of, s.number));
            shards
        };
        let check = |files: &[&str]| check_complete(Path::new("d"), &shards(files));
        assert!(check(&["t-0-of-2", "t-1-of-2"]).is_ok());
        for (files, part) in [
            (&["t-0-of-3", "t-2-of-3"][..], "shard 1 of 3 of the split t is missing"),
            (&["t-0-of-3", "t-1-of-3"], "shard 2 of 3 of the split t is missing"),
            (&["t-1-of-2"], "shard 0 of 2"),
            (&["t-0-of-2", "t-0-of-2.tfrecord", "t-1-of-2"], "is there twice"),
            (&["t-0-of-1", "t-5-of-1"], "beyond the 1 shards"),
            (&["t-0-of-1", "t-0-of-2", "t-1-of-2"], "different sets"),
        ] {
            let message = check(files).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
