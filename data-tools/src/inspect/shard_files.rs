//! Finds the shards of a folder, either listed in `dataset.json` or by their names, and reads their indexes without
//! trusting them.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use loaders::record::OVERHEAD;
use loaders::shard::index_path;
use loaders::{Manifest, regular};

use super::walk::Position;
use crate::error::Error;
use crate::splits::{NameMatching, SplitAssigner, UnknownNames};

/// A shard that is identified by its file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardFile {
    /// The split's name. During the search, the common part in the shards' names.
    pub split: String,
    /// Index of the shard in the split.
    pub number: u64,
    /// Number of shards in the split.
    pub of: u64,
    pub file: String,
}

/// Returns the shards that `dataset.json` lists, in its order.
pub(super) fn from_manifest(manifest: &Manifest) -> Vec<ShardFile> {
    let each = manifest.splits.iter().flat_map(|(name, split)| {
        let of = split.shards.len() as u64;
        (0..).zip(&split.shards).map(move |(number, shard)| ShardFile {
            split: name.clone(),
            number,
            of,
            file: shard.file.clone(),
        })
    });
    each.collect()
}

/// Finds the shards in `dir` by their file names and returns them in order. A missing shard is an error. If a name
/// does not contain its split, `map` determines the split.
pub(crate) fn discover(dir: &Path, map: &[(String, String)]) -> Result<Vec<ShardFile>, Error> {
    let failed = |e| Error::io("read", dir, e);
    let mut shards = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A name that is not valid Unicode cannot match.
        let name = entry.file_name();
        shards.extend(name.to_str().and_then(parse_name));
    }
    if shards.is_empty() {
        return Err(Error::input(
            dir,
            "the folder contains no shards; expected files named like train-00000-of-00016.tfrecord (with or without .tfrecord)",
        ));
    }
    shards.sort_by(|a, b| (&a.split, a.of, a.number, &a.file).cmp(&(&b.split, b.of, b.number, &b.file)));
    for split in shards.chunk_by(|a, b| a.split == b.split) {
        check_complete(dir, split)?;
    }
    assign(dir, shards, map)
}

/// Assigns a split to each set of shards.
fn assign(dir: &Path, shards: Vec<ShardFile>, map: &[(String, String)]) -> Result<Vec<ShardFile>, Error> {
    let sets: Vec<Vec<ShardFile>> = shards.chunk_by(|a, b| a.split == b.split).map(<[ShardFile]>::to_vec).collect();
    let names: Vec<&str> = sets.iter().map(|set| set[0].split.as_str()).collect();
    let assign = SplitAssigner { src: dir, map, names: NameMatching::Loose, unknown: UnknownNames::Own };
    let splits = assign.splits(&names)?;
    let mut found: BTreeMap<String, Vec<ShardFile>> = BTreeMap::new();
    for (split, set) in splits.into_iter().zip(&sets) {
        let Some(split) = split else { continue };
        let all = found.entry(split.clone()).or_default();
        // A set with `-of-N` in its names is complete by itself. Files without numbers can be combined freely.
        if let Some(first) = all.first().filter(|first| first.of > 1 || set[0].of > 1) {
            let (a, b, name) = (&first.file, &set[0].file, &set[0].split);
            let what = format!(
                "{a} and {b} belong to different sets of shards for the split {split}; keep one set, or assign the other to a split \
                 with --split-map {name}=NAME"
            );
            return Err(Error::input(dir, what));
        }
        all.extend(set.iter().cloned());
    }
    let number = |(split, mut set): (String, Vec<ShardFile>)| {
        let of = set.len() as u64;
        for (number, shard) in (0..).zip(&mut set) {
            (shard.split, shard.number, shard.of) = (split.clone(), number, of);
        }
        set
    };
    let mut shards: Vec<Vec<ShardFile>> = found.into_iter().map(number).collect();
    shards.sort_by(|a, b| a[0].split.cmp(&b[0].split));
    Ok(shards.into_iter().flatten().collect())
}

/// Parses a shard's file name. Accepts three forms, each optionally followed by `.gz`:
/// - `SPLIT-<digits>-of-<digits>[.tfrecord[s]]`, with `_` or `-` before the digits
/// - `SPLIT.tfrecord[s]`
/// - `NAME-SPLIT.tfrecord-<digits>-of-<digits>`, as written by TensorFlow Datasets
fn parse_name(file: &str) -> Option<ShardFile> {
    let name = file.strip_suffix(".gz").unwrap_or(file);
    let stem = name.strip_suffix(".tfrecord").or_else(|| name.strip_suffix(".tfrecords"));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())?;
    let numbered = |stem: &str| {
        let (rest, of) = stem.rsplit_once("-of-").or_else(|| stem.rsplit_once("_of_"))?;
        let (split, number) = rest.rsplit_once(['-', '_'])?;
        let split = match split.strip_suffix(".tfrecord") {
            Some(tfds) => tfds.rsplit('-').next()?,
            None => split,
        };
        Some((split.to_string(), digits(number)?, digits(of)?))
    };
    let (split, number, of) = match numbered(stem.unwrap_or(name)) {
        Some(parts) => parts,
        None => (stem?.to_string(), 0, 1),
    };
    (!split.is_empty()).then(|| ShardFile { split, number, of, file: file.to_string() })
}

/// Returns an error if a shard is missing or exists twice. `split` must be sorted by (of, number).
fn check_complete(dir: &Path, split: &[ShardFile]) -> Result<(), Error> {
    let (first, of) = (&split[0], split[0].of);
    if let Some(other) = split.iter().find(|s| s.of != of) {
        return Err(Error::input(
            dir,
            format!("{} and {} belong to different sets of shards; keep one set in the folder", first.file, other.file),
        ));
    }
    let odd = (0..).zip(split).find(|(i, s)| s.number != *i);
    match odd {
        None if split.len() as u64 == of => Ok(()),
        Some((i, s)) if s.number < i || s.number >= of => Err(Error::input(
            &dir.join(&s.file),
            format!("this shard exists twice, or its number exceeds the {of} shards in its name"),
        )),
        odd => {
            let missing = odd.map_or(split.len() as u64, |(i, _)| i);
            Err(Error::input(
                dir,
                format!(
                    "split {}: shard {missing} of {of} is missing ({} exist, such as {}); fetch it",
                    first.split,
                    split.len(),
                    first.file
                ),
            ))
        }
    }
}

/// The index of a shard: offset and size of each record, including the framing.
pub(super) struct ShardIndex(Vec<(u64, u64)>);

impl ShardIndex {
    /// Reads the index of `shard`. The error text completes "the index ...".
    pub fn read(shard: &Path) -> Result<Self, String> {
        let most = shard.metadata().map_or(0, |meta| meta.len() / OVERHEAD);
        match regular::read_to_string(&index_path(shard)) {
            Ok(text) => parse(&text, most).map(ShardIndex).map_err(|line| format!("line {line} is not `offset size`")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err("is missing".to_string()),
            Err(e) => Err(format!("cannot be read: {e}")),
        }
    }

    /// Returns the first record that starts after `offset` and within a shard of `length` bytes.
    pub fn next(&self, offset: u64, length: u64) -> Option<Position> {
        let record = self.0.iter().position(|entry| entry.0 > offset && entry.0 < length)?;
        Some(Position { record: record as u64, offset: self.0[record].0 })
    }

    /// Returns true if the record at `offset` ends exactly at `length`.
    pub fn is_last(&self, offset: u64, length: u64) -> bool {
        self.0.iter().any(|entry| entry.0 == offset && entry.0.checked_add(entry.1) == Some(length))
    }

    /// Describes how the index differs from the shard's records. Returns `None` if they are equal.
    pub fn difference(&self, records: &[(u64, u64)]) -> Option<String> {
        if self.0 == records {
            return None;
        }
        let same = self.0.iter().zip(records).take_while(|(a, b)| a == b).count();
        let words = |list: &[(u64, u64)]| match list.get(same) {
            Some((offset, size)) => format!("{size} bytes at {offset}"),
            None => "no more records".to_string(),
        };
        Some(format!(
            "the index is wrong from record {same} on: it lists {}, but the shard has {}; run `trireme data index`",
            words(&self.0),
            words(records)
        ))
    }
}

/// Parses at most `first` + 1 lines of an index, or returns the number of the first malformed line. The limit protects
/// against an index with far more lines than the shard can have records.
fn parse(text: &str, first: u64) -> Result<Vec<(u64, u64)>, usize> {
    let entry = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let entry = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(entry)
    };
    let lines = text.lines().take(usize::try_from(first).unwrap_or(usize::MAX).saturating_add(1));
    lines.enumerate().map(|(i, line)| entry(line).ok_or(i + 1)).collect()
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
        assert_eq!(parts("flowers_train_00000-of-00005.tfrecord"), is("flowers_train", 0, 5));
        assert_eq!(parts("train.tfrecord"), is("train", 0, 1));
        assert_eq!(parts("cifar10-test.tfrecord-00001-of-00002"), is("test", 1, 2));
        assert_eq!(parts("train-00003-of-01024.tfrecord.gz"), is("train", 3, 1024));
        assert_eq!(parts("train-00003-of-01024.idx"), None);
        assert_eq!(parts("train-00003-of-00016.tfrecord.idx"), None);
        assert_eq!(parts("train-x-of-2"), None);
        assert_eq!(parts("-0-of-2"), None);
        assert_eq!(parts("dataset.json"), None);
    }

    #[test]
    fn a_set_of_shards_must_be_complete() {
        let shards = |files: &[&str]| -> Vec<ShardFile> {
            let mut shards: Vec<ShardFile> = files.iter().filter_map(|f| parse_name(f)).collect();
            shards.sort_by_key(|s| (s.of, s.number));
            shards
        };
        let check = |files: &[&str]| check_complete(Path::new("d"), &shards(files));
        assert!(check(&["t-0-of-2", "t-1-of-2"]).is_ok());
        for (files, part) in [
            (&["t-0-of-3", "t-2-of-3"][..], "split t: shard 1 of 3"),
            (&["t-0-of-3", "t-1-of-3"], "split t: shard 2 of 3"),
            (&["t-1-of-2"], "shard 0 of 2"),
            (&["t-0-of-2", "t-0-of-2.tfrecord", "t-1-of-2"], "exists twice"),
            (&["t-0-of-1", "t-5-of-1"], "exceeds the 1 shards"),
            (&["t-0-of-1", "t-0-of-2", "t-1-of-2"], "different sets"),
        ] {
            let message = check(files).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
