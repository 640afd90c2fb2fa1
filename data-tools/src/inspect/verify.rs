//! Checks a whole data set and names every fault: checksums, lengths, counts, labels, images, indexes. An image is good
//! if training can decode all of it.

use super::check::{Bad, Check};
use super::copies::{self, CopyNames, Gallery, NearCopy};
use crate::error::Error;
use crate::progress::Progress;
use crate::splits::TRAIN;
use crate::{pool, progress, text};
use loaders::dataset::MANIFEST;
use loaders::{Manifest, ShardManifest, SplitManifest};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a verification has found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The data set's folder.
    pub dir: PathBuf,
    /// Records checked, good and bad.
    pub checked: u64,
    /// Shards checked.
    pub shards: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// Every fault, in the order of splits, shards and records.
    pub bad: Vec<Bad>,
    /// Pictures that an earlier split has too, of each the nearest; they are no faults.
    pub copies: Vec<NearCopy>,
    /// The names of the first of them.
    pub examples: Vec<CopyNames>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Checks every record of the data set in `dir` on `jobs` threads (0: one for each core) and continues behind faults.
///
/// A record whose length cannot be trusted hides the next ones: then the check continues where the index, if there is one,
/// has the next record.
///
/// # Errors
/// Only where there is no `dataset.json` that can be read; every other fault is in the report.
pub fn verify(dir: &Path, jobs: usize) -> Result<Report, Error> {
    let _watch = progress::watch()?;
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let listed =
        manifest.splits.iter().flat_map(|(name, split)| split.shards.iter().map(move |shard| (name, (shard, split))));
    let (names, shards): (Vec<&String>, Vec<(&ShardManifest, &SplitManifest)>) = listed.unzip();
    let samples = manifest.splits.values().map(|s| s.count).sum();
    let progress = Progress::new("verifying", Some(samples), true);
    let checks = pool::run(shards.len(), jobs, |i| Ok(Check::run(dir, shards[i], &manifest, &mut progress.counter())))?;
    drop(progress);
    let mut bad = of_the_manifest(&manifest);
    bad.extend(listed_twice(&shards));
    bad.extend(unseen(&manifest, &names, &shards, &checks));
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
    Ok(Report { dir, checked, shards, bytes, bad, copies, examples, elapsed: started.elapsed() })
}

/// What training would accept, and which is hardly meant: no split, and classes that cannot be told apart by their names.
fn of_the_manifest(manifest: &Manifest) -> Vec<Bad> {
    let mut bad = Vec::new();
    let mut fault = |what: String| bad.push(Bad::shard(MANIFEST, what));
    if manifest.splits.is_empty() {
        fault("it has no splits, so there is nothing to train on".into());
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
fn unseen(
    manifest: &Manifest,
    names: &[&String],
    shards: &[(&ShardManifest, &SplitManifest)],
    checks: &[Check<'_>],
) -> Vec<Bad> {
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
                let name = loaders::printable(&manifest.classes[class]);
                let what = format!(
                    "the class `{name}`, of which {split} has {}, has none in train: nothing could learn it, or the splits number their \
                     classes differently",
                    text::plural(count, "record")
                );
                bad.push(Bad::record(&shard.file, at, what));
            }
        }
    }
    bad
}

/// A shard listed twice would count its samples twice.
fn listed_twice(shards: &[(&ShardManifest, &SplitManifest)]) -> Vec<Bad> {
    let mut seen = BTreeSet::new();
    let again = shards.iter().filter(|(s, _)| !seen.insert(s.file.as_str()));
    again.map(|(s, _)| Bad::shard(&s.file, "dataset.json lists it more than once".to_string())).collect()
}

impl Report {
    /// True where no fault was found.
    pub fn is_ok(&self) -> bool {
        self.bad.is_empty()
    }

    /// The report for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let bad: Vec<_> = self.bad.iter().map(Bad::to_json).collect();
        json!({
            "dir": self.dir.display().to_string(),
            "ok": self.is_ok(),
            "checked": self.checked,
            "shards": self.shards,
            "bytes": self.bytes,
            "bad": bad,
            "copies": copies::counts_json(&self.copies, &self.examples),
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

/// A line for each fault, then a summary, and a line for each pair of splits that share pictures.
impl fmt::Display for Report {
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
