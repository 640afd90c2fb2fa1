//! Checks a whole data set and names every fault: checksums, lengths, counts, labels, image
//! headers, indexes.

use crate::error::Error;
use crate::image::pixels;
use crate::inspect::stats::label_fault;
use crate::inspect::walk::{Found, Walk};
use crate::progress::{Counter, Progress};
use crate::{pool, text};
use loaders::shard::index_path;
use loaders::{Manifest, ShardManifest, example};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a verification has found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The data set's folder.
    pub dir: PathBuf,
    /// Records looked at, good and bad.
    pub checked: u64,
    /// Shards looked at.
    pub shards: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// Every fault, in the order of splits, shards and records.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The shard's file name.
    pub shard: String,
    /// Number of the record in its shard, from 0; `None` where the shard as a whole is at fault.
    pub record: Option<u64>,
    /// Byte offset of the record.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// Checks every record of the data set in `dir` on `jobs` threads (0: one for each core) and goes
/// on past faults.
///
/// A record whose length cannot be trusted hides the next ones: then the index, if there is one,
/// says where to go on.
///
/// # Errors
/// Only where there is no `dataset.json` that can be read; every other fault stands in the report.
pub fn verify(dir: &Path, jobs: usize) -> Result<Report, Error> {
    let started = Instant::now();
    let manifest = Manifest::read(dir)?;
    let shards: Vec<&ShardManifest> = manifest.splits.values().flat_map(|s| &s.shards).collect();
    let samples = manifest.splits.values().map(|s| s.count).sum();
    let progress = Progress::new("verifying", Some(samples), true);
    let parts = pool::run(shards.len(), jobs, |i| {
        let mut check = Check::new(dir, shards[i], &manifest);
        check.run(&mut progress.counter());
        Ok(check)
    })?;
    drop(progress);
    let mut report = Report {
        dir: dir.to_path_buf(),
        checked: 0,
        shards: shards.len() as u64,
        bytes: 0,
        bad: listed_twice(&shards),
        elapsed: Duration::ZERO,
    };
    for part in parts {
        report.checked += part.checked;
        report.bytes += part.bytes;
        report.bad.extend(part.bad);
    }
    report.elapsed = started.elapsed();
    Ok(report)
}

/// A shard listed twice would count its samples twice.
fn listed_twice(shards: &[&ShardManifest]) -> Vec<Bad> {
    let mut seen = BTreeSet::new();
    let again = shards.iter().filter(|s| !seen.insert(s.file.as_str()));
    again
        .map(|s| Bad {
            shard: s.file.clone(),
            record: None,
            offset: None,
            what: "dataset.json lists it more than once".to_string(),
        })
        .collect()
}

/// The check of one shard.
struct Check<'a> {
    path: PathBuf,
    said: &'a ShardManifest,
    manifest: &'a Manifest,
    checked: u64,
    bytes: u64,
    bad: Vec<Bad>,
}

impl<'a> Check<'a> {
    fn new(dir: &Path, said: &'a ShardManifest, manifest: &'a Manifest) -> Self {
        Check { path: dir.join(&said.file), said, manifest, checked: 0, bytes: 0, bad: Vec::new() }
    }

    fn run(&mut self, counter: &mut Counter<'_>) {
        if let Err(error) = self.walk(counter) {
            self.fault(None, error.to_string());
        }
    }

    fn walk(&mut self, counter: &mut Counter<'_>) -> Result<(), Error> {
        let mut walk = Walk::open(&self.path)?;
        self.bytes = walk.len();
        if walk.len() != self.said.bytes {
            let (said, is) = (self.said.bytes, walk.len());
            self.fault(None, format!("dataset.json says {said} bytes, the file has {is}"));
        }
        let index = self.read_index();
        let (mut entries, mut lost) = (Vec::new(), false);
        while let Some(found) = walk.step()? {
            let (number, offset, broken) = (found.number, found.offset, found.lost);
            self.checked += 1;
            entries.push((offset, found.size));
            if let Err(what) = check_record(&found, self.manifest) {
                self.fault(Some((number, offset)), what);
            }
            counter.tick();
            if broken {
                lost = true;
                self.resume(&mut walk, &index, number, offset)?;
            }
        }
        match index {
            Some(index) if !lost && index != entries => {
                self.fault(None, differing(&index, &entries));
            }
            _ => {}
        }
        if self.checked != self.said.count {
            let (said, is) = (self.said.count, self.checked);
            self.fault(None, format!("dataset.json says {said} records, {is} were found"));
        }
        Ok(())
    }

    /// Goes on behind a record of unknown length, at the next position that the index knows.
    fn resume(
        &mut self,
        walk: &mut Walk,
        index: &Option<Vec<(u64, u64)>>,
        number: u64,
        offset: u64,
    ) -> Result<(), Error> {
        let entries = index.as_deref().unwrap_or_default();
        let len = walk.len();
        if let Some(next) = entries.iter().position(|e| e.0 > offset && e.0 < len) {
            return walk.resume(next as u64, entries[next].0);
        }
        let is_last = |e: &(u64, u64)| e.0 == offset && e.0.checked_add(e.1) == Some(len);
        if !entries.iter().any(is_last) {
            let what = format!("the last {} bytes of the shard, from here on, could not be checked", len - offset);
            self.fault(Some((number, offset)), what);
        }
        Ok(())
    }

    fn read_index(&mut self) -> Option<Vec<(u64, u64)>> {
        let path = index_path(&self.path);
        let problem = match fs::read_to_string(&path) {
            Ok(text) => match parse_index(&text) {
                Ok(entries) => return Some(entries),
                Err(line) => format!("line {line} is not `offset size`"),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => "is missing".to_string(),
            Err(e) => format!("cannot be read: {e}"),
        };
        let what = format!("its index {problem}; run `trireme data index`");
        self.fault(None, what);
        None
    }

    fn fault(&mut self, at: Option<(u64, u64)>, what: String) {
        self.bad.push(Bad {
            shard: self.said.file.clone(),
            record: at.map(|(record, _)| record),
            offset: at.map(|(_, offset)| offset),
            what,
        });
    }
}

/// The entries of an index, or the number of the first line that is none.
pub(crate) fn parse_index(text: &str) -> Result<Vec<(u64, u64)>, usize> {
    let entry = |line: &str| {
        let (offset, size) = line.split_once(' ')?;
        Some((offset.parse().ok()?, size.parse().ok()?))
    };
    text.lines().enumerate().map(|(i, line)| entry(line).ok_or(i + 1)).collect()
}

fn differing(index: &[(u64, u64)], entries: &[(u64, u64)]) -> String {
    let same = index.iter().zip(entries).take_while(|(a, b)| a == b).count();
    let words = |list: &[(u64, u64)]| match list.get(same) {
        Some((offset, size)) => format!("{size} bytes at {offset}"),
        None => "no more records".to_string(),
    };
    format!(
        "its index is wrong from record {same} on: it says {}, the shard has {}; run `trireme data index`",
        words(index),
        words(entries)
    )
}

/// Checksums, protobuf, label, image header of one record.
fn check_record(found: &Found<'_>, manifest: &Manifest) -> Result<(), String> {
    let payload = found.payload.map_err(|e| e.to_string())?;
    let example = example::parse(payload).map_err(|e| e.to_string())?;
    let class = i128::from(example.label) - i128::from(manifest.label_offset);
    if class < 0 || class >= manifest.classes.len() as i128 {
        return Err(label_fault(example.label, manifest));
    }
    pixels::check_image(&example).map(drop)
}

impl Report {
    /// True where no fault was found.
    pub fn is_ok(&self) -> bool {
        self.bad.is_empty()
    }

    /// The same for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let bad: Vec<_> = self.bad.iter().map(Bad::to_json).collect();
        json!({
            "dir": self.dir.display().to_string(),
            "ok": self.is_ok(),
            "checked": self.checked,
            "shards": self.shards,
            "bytes": self.bytes,
            "bad": bad,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl Bad {
    /// The same for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"shard": self.shard, "record": self.record, "offset": self.offset, "what": self.what})
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.record, self.offset) {
            (Some(record), Some(offset)) => {
                write!(f, "{}, record {record} at byte {offset}: {}", self.shard, self.what)
            }
            _ => write!(f, "{}: {}", self.shard, self.what),
        }
    }
}

/// A line for each fault, then one that sums up.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bad in &self.bad {
            writeln!(f, "{bad}")?;
        }
        write!(
            f,
            "{}: {} in {}, {}, checked in {:.2} s: ",
            self.dir.display(),
            text::plural(self.checked, "record"),
            text::plural(self.shards, "shard"),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )?;
        match self.bad.len() {
            0 => write!(f, "all good"),
            n => write!(f, "{}", text::plural(n as u64, "fault")),
        }
    }
}
