//! Checks a whole data set and reports every fault in checksums, lengths, counts, labels, images and indexes. An image
//! is good if training can decode all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::text::printable;
use loaders::dataset::MANIFEST;
use loaders::{Example, Manifest, ShardManifest, SplitManifest, decode, example};
use serde::Serialize;
use serde_json::json;

use super::copies::{self, CopyNames, Gallery, NearCopy, Picture};
use super::manifest;
use super::shard_files::ShardIndex;
use super::walk::{Position, ShardRecord, Walk};
use crate::error::Error;
use crate::image::pixels::PixelDecoder;
use crate::progress::{Counter, Progress};
use crate::splits::TRAIN;
use crate::{pool, text};

/// The findings of [`verify`].
#[derive(Debug, Clone)]
pub struct VerifyReport {
    pub dir: PathBuf,
    /// Number of good and bad records checked.
    pub checked: u64,
    pub shards: u64,
    /// Total size of the checked shards in bytes.
    pub bytes: u64,
    /// All faults in the order of splits, shards and records.
    pub bad: Vec<ShardFault>,
    /// Images that also occur in an earlier split, each with its nearest original. They do not count as faults.
    pub copies: Vec<NearCopy>,
    /// The names of the first near copies.
    pub examples: Vec<CopyNames>,
    pub elapsed: Duration,
}

/// Checks every record of the data set in `dir` on `jobs` threads (0 means one per core). Continues after faults.
///
/// If the length of a record cannot be trusted, the position of the following records is unknown. The check then
/// continues at the next record of the index, if there is one.
///
/// # Errors
///
/// Returns an error only if `dataset.json` cannot be read. All other faults are in the report.
pub fn verify(dir: &Path, jobs: usize) -> Result<VerifyReport, Error> {
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let listed =
        manifest.splits.iter().flat_map(|(name, split)| split.shards.iter().map(move |shard| (name, (shard, split))));
    let (names, shards): (Vec<&String>, Vec<(&ShardManifest, &SplitManifest)>) = listed.unzip();
    let samples = manifest.splits.values().map(|s| s.count).sum();
    let progress = Progress::new("verifying", Some(samples), true);
    let checks = pool::run(shards.len(), jobs, |i| Ok(Check::run(dir, shards[i], &manifest, &mut progress.counter())))?;
    drop(progress);
    let mut bad = manifest_faults(&manifest);
    bad.extend(shards_listed_twice(&shards));
    bad.extend(missing_in_train(&manifest, &names, &shards, &checks));
    let (mut checked, mut bytes, mut gallery, mut first) = (0, 0, Gallery::default(), 0);
    for (at, check) in checks.into_iter().enumerate() {
        first = if at > 0 && names[at] == names[at - 1] { first + shards[at - 1].0.count } else { 0 };
        checked += check.checked;
        bytes += check.bytes;
        bad.extend(check.bad);
        gallery.add(names[at], first, check.pictures.unwrap_or_default());
    }
    let copies = gallery.near_copies(jobs)?;
    let examples = copies::examples(dir, &copies);
    let (dir, shards) = (dir.to_path_buf(), shards.len() as u64);
    Ok(VerifyReport { dir, checked, shards, bytes, bad, copies, examples, elapsed: started.elapsed() })
}

/// Finds faults that training would accept but that are probably mistakes: no splits, and classes without a name or
/// with the same name.
fn manifest_faults(manifest: &Manifest) -> Vec<ShardFault> {
    let mut bad = Vec::new();
    let mut fault = |what: String| bad.push(ShardFault::shard(MANIFEST, what));
    if manifest.splits.is_empty() {
        fault("the data set has no splits, so there is nothing to train on".into());
    }
    let mut first = BTreeMap::new();
    for (number, name) in manifest.classes.iter().enumerate() {
        match first.insert(name, number) {
            _ if name.is_empty() => fault(format!("class {number} has no name")),
            Some(earlier) => fault(format!("classes {earlier} and {number} are both named `{}`", name.escape_debug())),
            None => {}
        }
    }
    bad
}

/// Reports classes that another split has and `train` lacks, if there is a `train` split. No model could learn them, or the splits use
/// different numbering. Multi-label data sets are exempt, because a rare class may be missing by chance.
fn missing_in_train(
    manifest: &Manifest,
    names: &[&String],
    shards: &[(&ShardManifest, &SplitManifest)],
    checks: &[Check<'_>],
) -> Vec<ShardFault> {
    let each = || names.iter().zip(shards).zip(checks);
    let of_train = each().filter(|((name, _), _)| name.as_str() == TRAIN);
    let trained: BTreeSet<usize> = of_train.flat_map(|(_, check)| check.classes.keys().copied()).collect();
    let mut bad = Vec::new();
    if manifest.multi_label || trained.is_empty() {
        return bad;
    }
    let mut told = BTreeSet::new();
    for ((split, (shard, _)), check) in each().filter(|((name, _), _)| name.as_str() != TRAIN) {
        for (&class, &(_, at)) in check.classes.iter().filter(|(class, _)| !trained.contains(class)) {
            if told.insert((*split, class)) {
                let all = each().filter(|((name, _), _)| *name == split);
                let count = all.filter_map(|(_, check)| check.classes.get(&class)).map(|(count, _)| count).sum();
                let name = base::text::printable(&manifest.classes[class]);
                let what = format!(
                    "class `{name}`: {split} has {}, but train has none; a model cannot learn this class, or the splits number their \
                     classes differently",
                    text::plural(count, "record")
                );
                bad.push(ShardFault::record(&shard.file, at, what));
            }
        }
    }
    bad
}

/// Finds shards that are listed twice. Training would use their samples twice.
fn shards_listed_twice(shards: &[(&ShardManifest, &SplitManifest)]) -> Vec<ShardFault> {
    let mut seen = BTreeSet::new();
    let again = shards.iter().filter(|(s, _)| !seen.insert(s.file.as_str()));
    again.map(|(s, _)| ShardFault::shard(&s.file, "dataset.json lists this shard more than once".to_string())).collect()
}

impl VerifyReport {
    /// Returns true if no fault was found.
    pub fn is_ok(&self) -> bool {
        self.bad.is_empty()
    }

    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "dir": self.dir.display().to_string(),
            "ok": self.is_ok(),
            "checked": self.checked,
            "shards": self.shards,
            "bytes": self.bytes,
            "bad": self.bad,
            "copies": copies::counts_json(&self.copies, &self.examples),
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

/// Writes a line for each fault, then a summary, and a line for each pair of splits that share images.
impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bad in &self.bad {
            writeln!(f, "{bad}")?;
        }
        write!(
            f,
            "{}: {} in {}, {}, checked in {:.2} s: ",
            text::path(&self.dir),
            text::plural(self.checked, "record"),
            text::plural(self.shards, "shard"),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )?;
        match self.bad.len() {
            0 => write!(f, "all good")?,
            n => write!(f, "{}", text::plural(n as u64, "fault"))?,
        }
        copies::write_counts(&self.copies, &self.examples, f)
    }
}

/// The check of one shard and its results.
pub(super) struct Check<'a> {
    path: PathBuf,
    /// The shard's entry in `dataset.json`.
    expected: &'a ShardManifest,
    /// The entry of the shard's split in `dataset.json`.
    split: &'a SplitManifest,
    manifest: &'a Manifest,
    /// Number of records, including bad ones.
    pub checked: u64,
    /// Size of the shard file in bytes.
    pub bytes: u64,
    pub bad: Vec<ShardFault>,
    /// For each class, the number of records and the position of the first one.
    pub classes: BTreeMap<usize, (u64, Position)>,
    /// The good images of the shard, or `None` if images are not compared.
    pub pictures: Option<Vec<Picture>>,
}

impl<'a> Check<'a> {
    /// Checks a shard of the data set in `dir`. A shard that cannot be read counts as a fault. If there is more than
    /// one split, the images are kept for comparison.
    pub fn run(
        dir: &Path,
        (expected, split): (&'a ShardManifest, &'a SplitManifest),
        manifest: &'a Manifest,
        counter: &mut Counter<'_>,
    ) -> Self {
        let path = dir.join(&expected.file);
        let pictures = (manifest.splits.len() > 1).then(Vec::new);
        let mut check = Check {
            path,
            expected,
            split,
            manifest,
            checked: 0,
            bytes: 0,
            bad: Vec::new(),
            classes: BTreeMap::new(),
            pictures,
        };
        if let Err(error) = check.walk(counter) {
            check.fault(error.to_string());
        }
        check
    }

    fn walk(&mut self, counter: &mut Counter<'_>) -> Result<(), Error> {
        let mut walk = Walk::open(&self.path)?;
        self.bytes = walk.length;
        if self.bytes != self.expected.bytes {
            self.fault(format!("dataset.json lists {} bytes, but the file has {}", self.expected.bytes, self.bytes));
        }
        let index = self.read_index();
        let entries = self.records(&mut walk, index.as_ref(), counter)?;
        if let (Some(index), Some(entries)) = (&index, entries)
            && let Some(what) = index.difference(&entries)
        {
            self.fault(what);
        }
        if self.checked != self.expected.count {
            let expected = text::plural(self.expected.count, "record");
            self.fault(format!("dataset.json lists {expected}, found {}", self.checked));
        }
        Ok(())
    }

    /// Checks the records. Returns offset and size of all of them, or `None` if the length of a record could not be
    /// trusted.
    fn records(
        &mut self,
        walk: &mut Walk,
        index: Option<&ShardIndex>,
        counter: &mut Counter<'_>,
    ) -> Result<Option<Vec<(u64, u64)>>, Error> {
        let (mut entries, mut complete, mut pixels) = (Vec::new(), true, PixelDecoder::default());
        while let Some(found) = walk.step()? {
            let (at, bad_length) = (found.at, found.bad_length);
            self.checked += 1;
            entries.push((at.offset, found.size));
            match check_record(&found, self.split, self.manifest, &mut pixels, self.pictures.as_mut()) {
                Ok(classes) => {
                    classes.into_iter().for_each(|class| self.classes.entry(class).or_insert((0, at)).0 += 1)
                }
                Err(what) => self.bad.push(ShardFault::record(&self.expected.file, at, what)),
            }
            counter.tick();
            if bad_length {
                complete = false;
                self.resume(walk, index, at)?;
            }
        }
        Ok(complete.then_some(entries))
    }

    /// Continues after a record of unknown length, at the next position in the index.
    fn resume(&mut self, walk: &mut Walk, index: Option<&ShardIndex>, at: Position) -> Result<(), Error> {
        let length = walk.length;
        if let Some(next) = index.and_then(|index| index.next(at.offset, length)) {
            return walk.resume(next);
        }
        if !index.is_some_and(|index| index.is_last(at.offset, length)) {
            let left = length - at.offset;
            let what = format!("the rest of the shard ({left} bytes from here) could not be checked");
            self.bad.push(ShardFault::record(&self.expected.file, at, what));
        }
        Ok(())
    }

    fn read_index(&mut self) -> Option<ShardIndex> {
        match ShardIndex::read(&self.path) {
            Ok(index) => Some(index),
            Err(problem) => {
                self.fault(format!("the index {problem}; run `trireme data index`"));
                None
            }
        }
    }

    fn fault(&mut self, what: String) {
        self.bad.push(ShardFault::shard(&self.expected.file, what));
    }
}

/// Checks a record's checksums, protobuf, label and image. Adds the image to `pictures` and returns the record's classes.
fn check_record(
    found: &ShardRecord<'_>,
    split: &SplitManifest,
    manifest: &Manifest,
    pixels: &mut PixelDecoder,
    pictures: Option<&mut Vec<Picture>>,
) -> Result<Vec<usize>, String> {
    let payload = found.payload.map_err(|e| e.to_string())?;
    let example = example::parse(payload).map_err(|e| e.to_string())?;
    let classes = manifest::classes(&example, manifest)?;
    manifest::check_name(&example, &classes, manifest)?;
    decode::check_entry_points(&example).map_err(|fault| fault.to_string())?;
    manifest::check_bands(&example, manifest)?;
    let reduced = pixels.reduced(&example)?;
    check_size(&example, split)?;
    if let Some(pictures) = pictures {
        pictures.push(Picture::new(found.at.record, &example, &reduced));
    }
    Ok(classes)
}

/// Returns an error if the stored image does not have the size, or is outside the range of sizes, that `dataset.json`
/// states for its split.
fn check_size(example: &Example<'_>, split: &SplitManifest) -> Result<(), String> {
    let spec = decode::spec_as(example, decode::Exif::Ignored).map_err(|fault| fault.to_string())?;
    let got = [spec.height, spec.width];
    let within = |least: [u32; 2], most: [u32; 2]| (0..2).all(|side| (least[side]..=most[side]).contains(&got[side]));
    let of = |[height, width]: [u32; 2]| format!("{height}x{width}");
    match (split.size, split.sizes) {
        (Some(size), _) if got != size => Err(format!(
            "the image has {}, but according to dataset.json all images have {} (height x width)",
            of(got),
            of(size)
        )),
        (_, Some([least, most])) if !within(least, most) => {
            let (least, most) = (of(least), of(most));
            Err(format!(
                "the image has {}, but according to dataset.json images have {least} to {most} (height x width)",
                of(got)
            ))
        }
        _ => Ok(()),
    }
}

/// A fault of a shard or record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardFault {
    /// File name of the shard, or `dataset.json`.
    pub shard: String,
    /// Index of the record in its shard. `None` if the fault concerns the whole shard.
    pub record: Option<u64>,
    pub offset: Option<u64>,
    pub what: String,
}

impl ShardFault {
    pub(super) fn shard(shard: &str, what: String) -> Self {
        ShardFault { shard: shard.to_string(), record: None, offset: None, what }
    }

    pub(super) fn record(shard: &str, at: Position, what: String) -> Self {
        ShardFault { shard: shard.to_string(), record: Some(at.record), offset: Some(at.offset), what }
    }
}

impl fmt::Display for ShardFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shard, what) = (printable(&self.shard), printable(&self.what));
        match (self.record, self.offset) {
            (Some(record), Some(offset)) => {
                write!(f, "{shard}, record {record} at byte {offset}: {what}")
            }
            _ => write!(f, "{shard}: {what}"),
        }
    }
}
