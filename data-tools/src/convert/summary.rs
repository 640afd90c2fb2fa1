//! The summary of a conversion: statistics of the written samples, and how the threads spent their time.

use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loaders::{Bands, Manifest, SplitManifest, Target};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::Error;
use crate::image::band_stats::{self, BandStats, Floats};
use crate::image::moments::Moments;
use crate::splits::TRAIN;
use crate::text;

/// File in a data set that lists the images that were left out, one per line.
pub(super) const SKIPPED: &str = "skipped.txt";
/// How many left-out images the printed summary shows. The file lists all of them.
const SHOWN: usize = 10;

/// The result of a conversion.
#[derive(Debug, Clone)]
pub struct ConvertSummary {
    pub out: PathBuf,
    /// The content of `dataset.json`.
    pub manifest: Manifest,
    /// Total size of the shards in bytes.
    pub bytes: u64,
    /// The requested number of shards if `train` has fewer samples and therefore fewer shards, otherwise `None`.
    pub fewer_shards_than: Option<usize>,
    /// Number of finished shards kept from an earlier attempt.
    pub resumed: usize,
    /// A message for each image that was left out because it is unusable.
    pub skipped: Vec<String>,
    /// Other messages, such as about a folder that was left out or a file property that was ignored.
    pub notes: Vec<String>,
    /// Working time, summed over all threads.
    pub spent: ThreadTimes,
    pub elapsed: Duration,
}

impl ConvertSummary {
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "out": self.out.display().to_string(),
            "classes": self.manifest.classes.len(),
            "targets": (!self.manifest.targets.is_empty()).then_some(&self.manifest.targets),
            "splits": splits_json(&self.manifest),
            "bytes": self.bytes,
            "mean": self.manifest.mean,
            "std": self.manifest.std,
            "bands": self.manifest.bands.need_version().then(|| band_stats::to_json(&self.manifest.bands)),
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

/// Formats a summary such as `data/mnist: train 60,000 in 16 shards, test 10,000 in 4 shards; 10 classes; 68.9 MiB in
/// 0.14 s`, followed by a line for each part that was left out.
impl fmt::Display for ConvertSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `train` comes first, then the other splits by descending size.
        let mut splits: Vec<_> = self.manifest.splits.iter().collect();
        splits.sort_by_key(|(name, s)| (name.as_str() != TRAIN, std::cmp::Reverse(s.count)));
        write_written(f, &self.out, splits, &self.manifest, (self.bytes, self.elapsed))?;
        if let Some(requested) = self.fewer_shards_than {
            write!(f, " (one sample per shard, because {requested} shards were requested)")?;
        }
        if self.resumed > 0 {
            write!(f, "\n  kept {} of an earlier attempt", text::plural(self.resumed as u64, "shard"))?;
        }
        for note in &self.notes {
            write!(f, "\n  {}", base::text::printable(note))?;
        }
        self.write_skipped(f)
    }
}

/// Writes the line about a new data set: its path, splits, number of classes, size in bytes and elapsed time.
pub(crate) fn write_written<'a>(
    f: &mut fmt::Formatter<'_>,
    out: &Path,
    splits: impl IntoIterator<Item = (&'a String, &'a SplitManifest)>,
    manifest: &Manifest,
    (bytes, elapsed): (u64, Duration),
) -> fmt::Result {
    let words = splits.into_iter().map(|(name, split)| {
        let shards = text::plural(split.shards.len() as u64, "shard");
        format!("{} {} in {shards}", base::text::shown(name), text::count(split.count))
    });
    let words = words.collect::<Vec<_>>().join(", ");
    let (labels, bytes) = (text::labels(manifest), text::bytes(bytes));
    write!(f, "{}: {words}; {labels}; {bytes} in {:.2} s", text::path(out), elapsed.as_secs_f64())
}

/// Returns the number of samples and shards of each split, for `--json`.
pub(crate) fn splits_json(manifest: &Manifest) -> serde_json::Value {
    let each = manifest.splits.iter();
    each.map(|(name, s)| (name.clone(), json!({"count": s.count, "shards": s.shards.len()}))).collect()
}

/// Returns the total size of all shards in bytes.
pub(crate) fn shard_bytes(manifest: &Manifest) -> u64 {
    manifest.splits.values().flat_map(|split| &split.shards).map(|shard| shard.bytes).sum()
}

/// Statistics for a set of samples. Merging is exact except for float values, so statistics are merged in sample order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampleStats {
    /// Pixel sums of the measured images.
    pub moments: Moments,
    /// Statistics for raw images. If set, `moments` is empty.
    #[serde(default, skip_serializing_if = "BandStats::is_empty")]
    pub bands: BandStats,
    /// Statistics per target over all images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Floats>,
    /// Number of measured images.
    pub measured: u64,
    /// The smallest height and width, and the largest height and width. `None` if there are no images.
    pub sizes: Option<[[u32; 2]; 2]>,
    #[serde(default)]
    pub entry_points: u64,
    /// Sum of hashes of the samples' file stamps, which detects changed files. See `sample_stamp` in `journal.rs`.
    #[serde(default)]
    pub stamps: u64,
    /// Number of TIFF files with unread pages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_pages: u64,
    /// Number of TIFF files with an ignored nodata value.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unused_nodata: u64,
    /// A message for each sample that was left out.
    pub skipped: Vec<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl SampleStats {
    pub(crate) fn add_size(&mut self, height: u32, width: u32) {
        self.widen([[height, width]; 2]);
    }

    fn widen(&mut self, [[h0, w0], [h1, w1]]: [[u32; 2]; 2]) {
        let [[a, b], [c, d]] = self.sizes.unwrap_or([[h0, w0], [h1, w1]]);
        self.sizes = Some([[a.min(h0), b.min(w0)], [c.max(h1), d.max(w1)]]);
    }

    pub(crate) fn merge(&mut self, other: SampleStats, shard: &Path) -> Result<(), Error> {
        self.moments.merge_shard(&other.moments, shard)?;
        self.bands.merge(&other.bands, shard)?;
        Floats::merge_all(&mut self.targets, other.targets);
        self.measured += other.measured;
        self.entry_points += other.entry_points;
        self.more_pages += other.more_pages;
        self.unused_nodata += other.unused_nodata;
        self.stamps = self.stamps.wrapping_add(other.stamps);
        if let Some(sizes) = other.sizes {
            self.widen(sizes);
        }
        self.skipped.extend(other.skipped);
        Ok(())
    }

    /// Returns messages about TIFF pages and nodata values that were ignored.
    pub(super) fn notes(&self) -> Vec<String> {
        let files = |count: u64| text::plural(count, "TIFF file");
        let pages = (self.more_pages > 0).then(|| {
            let files = files(self.more_pages);
            format!("{files} with several pages: only the first page is stored; choose another or all with --page")
        });
        let nodata = (self.unused_nodata > 0).then(|| {
            let files = files(self.unused_nodata);
            format!("{files} with 8 bits and a nodata value, which was ignored; --nodata V leaves these pixels out")
        });
        pages.into_iter().chain(nodata).collect()
    }

    /// Returns the height and width if all images have the same size.
    fn one_size(&self) -> Option<[u32; 2]> {
        self.sizes.filter(|[least, greatest]| least == greatest).map(|[least, _]| least)
    }

    /// Sets the image sizes and the number of images with entry points.
    pub(crate) fn describe(&self, split: &mut SplitManifest) {
        split.size = self.one_size();
        split.sizes = self.sizes.filter(|_| split.size.is_none());
        split.entry_points = Some(self.entry_points).filter(|&count| count > 0);
    }

    /// Returns the pixels' mean and standard deviation. Writes the same statistics into each of `targets`, and the
    /// statistics of raw images into `bands`. If a band has no values, returns its number (from 1) as the error.
    pub(crate) fn finish(&self, bands: &mut Bands, targets: &mut [Target]) -> Result<(Vec<f64>, Vec<f64>), usize> {
        for (target, measured) in targets.iter_mut().zip(&self.targets) {
            (target.mean, target.std) = measured.mean_and_std();
        }
        if self.bands.is_empty() { Ok(self.moments.finish()) } else { self.bands.finish(bands) }
    }
}

/// Time spent on each part of the work, summed over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Opening the source, listing and unpacking it, and reading samples.
    pub reading: Duration,
    /// Checking, decoding, resizing, encoding and measuring images.
    pub decoding: Duration,
    /// Framing records and writing them to shards.
    pub writing: Duration,
    /// Writing indexes and syncing shards to disk. Where possible, a separate thread does this while the others
    /// convert.
    pub syncing: Duration,
}

impl AddAssign for ThreadTimes {
    fn add_assign(&mut self, other: ThreadTimes) {
        self.reading += other.reading;
        self.decoding += other.decoding;
        self.writing += other.writing;
        self.syncing += other.syncing;
    }
}

impl ThreadTimes {
    /// Scales the measured times up to a thread's `whole` time, because only some samples are timed. `syncing` stays as
    /// it is.
    pub(super) fn extended_to(self, whole: Duration) -> Self {
        let measured = self.reading + self.decoding + self.writing;
        let part = |part: Duration| whole.mul_f64(part.as_secs_f64() / measured.as_secs_f64().max(1e-9));
        let ThreadTimes { reading, decoding, writing, syncing } = self;
        ThreadTimes { reading: part(reading), decoding: part(decoding), writing: part(writing), syncing }
    }
}

/// A stopwatch. Each lap begins where the previous one ended.
pub(super) struct Stopwatch {
    /// Start of the current lap. `None` if the watch is off and costs nothing.
    last: Option<Instant>,
}

impl Stopwatch {
    pub fn start() -> Self {
        Stopwatch { last: Some(Instant::now()) }
    }

    /// Starts a watch, or returns one that is off if `runs` is false.
    pub fn start_if(runs: bool) -> Self {
        if runs { Stopwatch::start() } else { Stopwatch { last: None } }
    }

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
        let (mut all, mut part) = (SampleStats::default(), SampleStats::default());
        assert_eq!(all.one_size(), None);
        all.add_size(4, 5);
        assert_eq!(all.one_size(), Some([4, 5]));
        part.add_size(4, 5);
        part.add_size(9, 2);
        part.moments.add(&[1, 2, 3], 3).unwrap();
        (part.measured, part.entry_points, all.entry_points) = (1, 2, 3);
        (part.stamps, all.stamps) = (u64::MAX, 3);
        part.skipped.push("a.jpg: bad".into());
        all.merge(part, Path::new("shard")).unwrap();
        assert_eq!((all.one_size(), all.sizes), (None, Some([[4, 2], [9, 5]])));
        assert_eq!((all.measured, all.entry_points, all.stamps, all.skipped.len()), (1, 5, 2, 1));
        let back: SampleStats = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(back, all);
    }

    #[test]
    fn laps_add_up() {
        let nap = Duration::from_millis(5);
        let (mut spent, mut all) = (ThreadTimes::default(), ThreadTimes::default());
        let started = Instant::now();
        let mut watch = Stopwatch::start();
        std::thread::sleep(nap);
        watch.lap(&mut spent.reading);
        std::thread::sleep(2 * nap);
        watch.lap(&mut spent.writing);
        let most = started.elapsed();
        assert!(spent.reading >= nap && spent.writing >= 2 * nap && spent.reading + spent.writing <= most);
        all += spent;
        all += spent;
        assert_eq!((all.reading, all.decoding, all.writing), (2 * spent.reading, Duration::ZERO, 2 * spent.writing));
        Stopwatch::start_if(false).lap(&mut all.decoding);
        assert_eq!(all.decoding, Duration::ZERO);
    }

    #[test]
    fn measured_times_are_scaled_to_the_whole_time() {
        let ms = Duration::from_millis;
        let some = ThreadTimes { reading: ms(1), decoding: ms(3), writing: ms(4), syncing: ms(5) };
        let all = some.extended_to(ms(80));
        let near = |got: Duration, expected| got.abs_diff(expected) < Duration::from_micros(1);
        assert!(near(all.reading, ms(10)) && near(all.decoding, ms(30)) && near(all.writing, ms(40)), "{all:?}");
        assert_eq!(all.syncing, ms(5));
        assert_eq!(ThreadTimes::default().extended_to(ms(80)), ThreadTimes::default());
    }
}
