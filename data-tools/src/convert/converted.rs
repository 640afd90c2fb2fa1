//! The summary of a conversion, for people and for scripts: facts about the samples that were written, and where the threads spent
//! their time.

use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::order::TRAIN;
use crate::error::Error;
use crate::image::moments::Moments;
use crate::text;

/// File of a data set with a line for each image that was left out.
pub(super) const SKIPPED: &str = "skipped.txt";
/// Left-out images that are shown to people; the file lists all.
const SHOWN: usize = 10;

/// What a conversion has made.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The data set's folder.
    pub out: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of requested shards, where there are fewer samples than that.
    pub fewer_shards_than: Option<usize>,
    /// Shards that an earlier attempt had finished.
    pub resumed: usize,
    /// A line for each image that was left out because it cannot be used.
    pub skipped: Vec<String>,
    /// A line for each other part of the source that was left out.
    pub notes: Vec<String>,
    /// Of the threads' time.
    pub spent: Spent,
    /// Wall-clock time.
    pub elapsed: Duration,
}

impl Converted {
    /// The summary for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let splits: serde_json::Map<String, serde_json::Value> = self
            .manifest
            .splits
            .iter()
            .map(|(name, s)| (name.clone(), json!({"count": s.count, "shards": s.shards.len()})))
            .collect();
        json!({
            "out": self.out.display().to_string(),
            "classes": self.manifest.classes.len(),
            "splits": splits,
            "bytes": self.bytes,
            "mean": self.manifest.mean,
            "std": self.manifest.std,
            "resumed_shards": self.resumed,
            "skipped": self.skipped,
            "notes": self.notes,
            "seconds": self.elapsed.as_secs_f64(),
            "thread_seconds": {
                "reading": self.spent.reading.as_secs_f64(),
                "decoding": self.spent.decoding.as_secs_f64(),
                "writing": self.spent.writing.as_secs_f64(),
                "syncing": self.spent.syncing.as_secs_f64(),
            },
        })
    }
}

/// One line, such as `data/mnist: train 60,000 in 16 shards, test 10,000 in 4 shards; 10 classes;
/// 68.9 MiB in 0.14 s`, and one for each thing that was left out.
impl fmt::Display for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; {}; {} in {:.2} s",
            text::path(&self.out),
            self.splits(),
            text::classes(self.manifest.classes.len()),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )?;
        if let Some(requested) = self.fewer_shards_than {
            write!(f, " ({requested} shards requested: one sample in each)")?;
        }
        if self.resumed > 0 {
            write!(f, "\n  {} of an earlier attempt kept", text::plural(self.resumed as u64, "shard"))?;
        }
        for note in &self.notes {
            write!(f, "\n  {}", loaders::printable(note))?;
        }
        self.write_skipped(f)
    }
}

impl Converted {
    /// The splits in words, `train` first, then by size.
    fn splits(&self) -> String {
        let mut splits: Vec<_> = self.manifest.splits.iter().collect();
        splits.sort_by_key(|(name, s)| (name.as_str() != TRAIN, std::cmp::Reverse(s.count)));
        let words = splits.iter().map(|(name, s)| {
            let shards = text::plural(s.shards.len() as u64, "shard");
            format!("{} {} in {shards}", loaders::shown(name), text::count(s.count))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn write_skipped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skipped.is_empty() {
            return Ok(());
        }
        let images = text::plural(self.skipped.len() as u64, "image");
        write!(f, "\n  {images} left out, all listed in {}:", text::path(&self.out.join(SKIPPED)))?;
        for line in self.skipped.iter().take(SHOWN) {
            write!(f, "\n    {line}")?;
        }
        match self.skipped.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n    and {} more", text::count(more as u64)),
        }
    }
}

/// Facts about some samples; adding two of them is exact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Sums over the pixels of the images that were measured.
    pub moments: Moments,
    /// Images measured.
    pub measured: u64,
    /// Least height and width, greatest height and width.
    pub sizes: Option<[[u32; 2]; 2]>,
    /// Images that have entry points.
    #[serde(default)]
    pub entry_points: u64,
    /// What tells whether their files have changed since: a sum, see `stamps`.
    #[serde(default)]
    pub stamps: u64,
    /// A line for each sample that was left out.
    pub skipped: Vec<String>,
}

impl Tally {
    /// Notes the size of an image.
    pub(super) fn see(&mut self, height: u32, width: u32) {
        self.widen([[height, width]; 2]);
    }

    fn widen(&mut self, [[h0, w0], [h1, w1]]: [[u32; 2]; 2]) {
        let [[a, b], [c, d]] = self.sizes.unwrap_or([[h0, w0], [h1, w1]]);
        self.sizes = Some([[a.min(h0), b.min(w0)], [c.max(h1), d.max(w1)]]);
    }

    /// Adds the facts about further samples of the shard `shard`.
    pub(super) fn merge(&mut self, other: Tally, shard: &Path) -> Result<(), Error> {
        self.moments.merge_shard(&other.moments, shard)?;
        self.measured += other.measured;
        self.entry_points += other.entry_points;
        self.stamps = self.stamps.wrapping_add(other.stamps);
        if let Some(sizes) = other.sizes {
            self.widen(sizes);
        }
        self.skipped.extend(other.skipped);
        Ok(())
    }

    /// Height and width, if all images have the same.
    pub(super) fn one_size(&self) -> Option<[u32; 2]> {
        self.sizes.filter(|[least, greatest]| least == greatest).map(|[least, _]| least)
    }
}

/// Time of all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Opening the source, listing and unpacking it, and reading its samples.
    pub reading: Duration,
    /// Checking, decoding, resizing, encoding and measuring pictures.
    pub decoding: Duration,
    /// Framing records and writing them to shards.
    pub writing: Duration,
    /// Making shards durable and writing their indexes: waiting for the disk, where it can be, beside the threads that convert.
    pub syncing: Duration,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.reading += other.reading;
        self.decoding += other.decoding;
        self.writing += other.writing;
        self.syncing += other.syncing;
    }
}

impl Spent {
    /// The parts for a thread's `whole` time, in the proportions of those measured: of some of its samples.
    pub(super) fn extended_to(self, whole: Duration) -> Self {
        let measured = self.reading + self.decoding + self.writing;
        let part = |part: Duration| whole.mul_f64(part.as_secs_f64() / measured.as_secs_f64().max(1e-9));
        let Spent { reading, decoding, writing, syncing } = self;
        Spent { reading: part(reading), decoding: part(decoding), writing: part(writing), syncing }
    }
}

/// A thread's watch: each lap begins where the one before it has ended.
pub(super) struct Watch {
    /// None for a watch that stands still, which costs nothing.
    last: Option<Instant>,
}

impl Watch {
    /// Starts the first lap.
    pub fn start() -> Self {
        Watch { last: Some(Instant::now()) }
    }

    /// The same, or a watch that stands still.
    pub fn start_if(runs: bool) -> Self {
        if runs { Watch::start() } else { Watch { last: None } }
    }

    /// Ends a lap and adds it to `sum`.
    pub fn lap(&mut self, sum: &mut Duration) {
        let Some(last) = &mut self.last else { return };
        let now = Instant::now();
        *sum += now - *last;
        *last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_sums_add_up() {
        let (mut all, mut part) = (Tally::default(), Tally::default());
        assert_eq!(all.one_size(), None);
        all.see(4, 5);
        assert_eq!(all.one_size(), Some([4, 5]));
        part.see(4, 5);
        part.see(9, 2);
        part.moments.add(&[1, 2, 3], 3).unwrap();
        (part.measured, part.entry_points, all.entry_points) = (1, 2, 3);
        (part.stamps, all.stamps) = (u64::MAX, 3);
        part.skipped.push("a.jpg: bad".into());
        all.merge(part, Path::new("shard")).unwrap();
        assert_eq!((all.one_size(), all.sizes), (None, Some([[4, 2], [9, 5]])));
        assert_eq!((all.measured, all.entry_points, all.stamps, all.skipped.len()), (1, 5, 2, 1));
        let back: Tally = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(back, all);
    }
}

#[cfg(test)]
mod spent_tests {
    use super::*;

    #[test]
    fn laps_add_up() {
        let nap = Duration::from_millis(5);
        let (mut spent, mut all) = (Spent::default(), Spent::default());
        let started = Instant::now();
        let mut watch = Watch::start();
        std::thread::sleep(nap);
        watch.lap(&mut spent.reading);
        std::thread::sleep(2 * nap);
        watch.lap(&mut spent.writing);
        let most = started.elapsed();
        assert!(spent.reading >= nap && spent.writing >= 2 * nap && spent.reading + spent.writing <= most);
        all += spent;
        all += spent;
        assert_eq!((all.reading, all.decoding, all.writing), (2 * spent.reading, Duration::ZERO, 2 * spent.writing));
        Watch::start_if(false).lap(&mut all.decoding);
        assert_eq!(all.decoding, Duration::ZERO);
    }

    #[test]
    fn what_some_samples_took_stands_for_all() {
        let ms = Duration::from_millis;
        let some = Spent { reading: ms(1), decoding: ms(3), writing: ms(4), syncing: ms(5) };
        let all = some.extended_to(ms(80));
        let near = |got: Duration, expected| got.abs_diff(expected) < Duration::from_micros(1);
        assert!(near(all.reading, ms(10)) && near(all.decoding, ms(30)) && near(all.writing, ms(40)), "{all:?}");
        assert_eq!(all.syncing, ms(5));
        assert_eq!(Spent::default().extended_to(ms(80)), Spent::default());
    }
}
