//! Measures the speed of a loader without a network, and which stage limits it. `trireme bench loader` reports this.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::text::grouped;
use serde::Serialize;

use crate::error::Error;
use crate::order::TrainOrder;
use crate::order::train::Shuffle;
use crate::ring::batch::PixelFormat;
use crate::ring::loader::Loader;
use crate::ring::options::{Footprint, Options};
use crate::ring::stats::{LoaderStats, Stages};
use crate::storage::dataset::{Dataset, Split};
use crate::transform::{Pipeline, exif_of};

#[derive(Debug, Clone)]
pub struct LoaderRequest {
    pub dir: PathBuf,
    pub split: String,
    /// The list of transforms, as in a recipe.
    pub transforms: Vec<String>,
    /// Number of images per batch.
    pub batch: usize,
    /// Number of passes over the split, at least 1.
    pub epochs: u32,
    pub shuffle: Shuffle,
    /// Threads, and how records are read.
    pub options: Options,
    /// Deliver stored values instead of floats, as for a GPU.
    pub stored: bool,
}

/// The loader's rates over whole epochs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// Median images per second over all epochs except the first. If there is only one epoch, its rate.
    pub img_per_s: f64,
    /// Images per second in the first epoch, when threads start and pages are not in memory yet.
    pub img_per_s_first: f64,
    /// Bytes of records per second, including framing, over all epochs.
    pub bytes_per_s: f64,
    /// Bytes of records per second that one thread copies from the files to the memory of a batch. No loader that
    /// delivers a copy of the records is faster.
    pub copy_bytes_per_s: f64,
    /// Seconds that the consumer waited over all epochs. The consumer has no other work.
    pub wait_s: f64,
    /// Microseconds of one thread per image, by stage.
    pub stages: StageTimes,
    /// Average number of batches that were ready when the consumer requested one.
    pub queue_depth: f64,
    /// How records were read and why, as returned by [`Loader::access`].
    pub io: String,
    /// Memory for batches and records, as computed by the loader.
    pub memory_mb: f64,
    /// The largest memory use of the process at the end of an epoch.
    pub rss_mb: f64,
    /// How to make the loader faster.
    pub advice: String,
}

/// Microseconds of one thread per image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTimes {
    /// Finding, reading and checking the record.
    pub read_us: f64,
    pub decode_us: f64,
    pub transform_us: f64,
    /// Time spent waiting for a free slot.
    pub slot_wait_us: f64,
}

impl StageTimes {
    /// Computes the means over all images so far.
    pub fn new(stats: &LoaderStats) -> Self {
        let mean = |time: Duration| time.as_secs_f64() * 1e6 / stats.images.max(1) as f64;
        let s = stats.stages;
        Self {
            read_us: mean(s.read),
            decode_us: mean(s.decode),
            transform_us: mean(s.transform),
            slot_wait_us: mean(s.slots),
        }
    }
}

/// Loads all epochs and drops each batch at once. `rss_mb` returns the current memory use of the process.
pub fn run(request: &LoaderRequest, rss_mb: impl Fn() -> f64) -> Result<Rate, Error> {
    let dataset = Dataset::open(&request.dir)?;
    let split = Arc::new(match request.shuffle {
        Shuffle::Full => dataset.split(&request.split)?,
        Shuffle::Window(_) => dataset.split_lazily(&request.split)?,
    });
    let pipeline =
        Pipeline::new(&request.transforms, split.images_as(exif_of(&request.transforms))?, &dataset.manifest, 1)?;
    let format = match request.stored {
        true => PixelFormat::Bytes(pipeline.dtype()),
        false => PixelFormat::Values,
    };
    if request.stored {
        pipeline.check_bytes()?;
    }
    let (epochs, batch) = (request.epochs.max(1), request.batch.max(1));
    let counts: Vec<u64> = split.shards().iter().map(|shard| shard.count).collect();
    let order = TrainOrder::new(1, split.len(), batch, 1, 0..1, (0, 0), epochs).shuffled(request.shuffle, &counts);
    let images = split.len() as f64;
    let options = Options { open: request.shuffle.open(1), ..request.options };
    let footprint = Footprint::new(&split, &options, batch, pipeline.output().values(), &format)?;
    footprint.check(&options)?;
    let start = Instant::now();
    let mut loader = Loader::start_as(format, split, pipeline, Box::new(order), options)?;
    let Epochs { mut rates, most_mb } = drain(&mut loader, images, start, rss_mb)?;
    let (stats, time) = (loader.stats(), start.elapsed());
    let copy_bytes_per_s = copy_rate(&dataset.split(&request.split)?, batch)?;
    Ok(Rate {
        img_per_s_first: rates[0],
        img_per_s: median(&mut rates[usize::from(epochs > 1)..]),
        bytes_per_s: stats.bytes as f64 / time.as_secs_f64(),
        copy_bytes_per_s,
        wait_s: stats.wait.as_secs_f64(),
        stages: StageTimes::new(&stats),
        queue_depth: stats.depth(),
        io: loader.access().to_owned(),
        memory_mb: footprint.bytes() as f64 / 1e6,
        rss_mb: most_mb,
        advice: stats.advice(time, options.threads, loader.maps_local_files()),
    })
}

/// Measurements at the ends of epochs.
struct Epochs {
    /// Images per second in each epoch.
    rates: Vec<f64>,
    /// The largest memory use of the process.
    most_mb: f64,
}

/// Receives and drops all batches of a loader. An epoch has `images` images.
fn drain(loader: &mut Loader, images: f64, start: Instant, rss_mb: impl Fn() -> f64) -> Result<Epochs, Error> {
    let mut ends = Epochs { rates: Vec::new(), most_mb: 0.0 };
    let (mut epoch, mut since) = (0, start);
    let mut end = |since: Instant| {
        ends.rates.push(images / since.elapsed().as_secs_f64());
        ends.most_mb = ends.most_mb.max(rss_mb());
    };
    while let Some(batch) = loader.next()? {
        if batch.epoch() != epoch {
            end(since);
            (epoch, since) = (batch.epoch(), Instant::now());
        }
    }
    end(since);
    Ok(ends)
}

/// How often [`copy_rate`] copies the split. The first pass maps the pages.
const COPIES: usize = 4;

/// Copies all records of a split in order, each to the place of an image in a batch. Returns the bytes per second of the
/// fastest pass.
fn copy_rate(split: &Split, batch: usize) -> Result<f64, Error> {
    let mut images = vec![Vec::new(); batch];
    let shards = (0..split.shards().len()).map(|number| split.shard(number)).collect::<Result<Vec<_>, Error>>()?;
    let mut best = 0.0f64;
    for _ in 0..COPIES {
        let (start, mut bytes, mut place) = (Instant::now(), 0, 0);
        for shard in &shards {
            for record in 0..shard.len() {
                let (Some(from), Some(to)) = (shard.offset(record), shard.offset(record + 1)) else { continue };
                shard.read_at(&mut images[place % batch], (to - from) as usize, from)?;
                (bytes, place) = (bytes + to - from, place + 1);
            }
        }
        std::hint::black_box(&images);
        best = best.max(bytes as f64 / start.elapsed().as_secs_f64().max(1e-9));
    }
    Ok(best)
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    if rates.len() % 2 == 1 { rates[middle] } else { (rates[middle - 1] + rates[middle]) / 2.0 }
}

/// If the consumer waited for less than this fraction of the time, no advice is needed.
const NEGLIGIBLE: f64 = 0.02;
/// If the consumer waited for more than this fraction of the time, it has no other work.
const IDLE: f64 = 0.95;
/// If a thread reads more bytes per second than this, the records are assumed to be in memory, not on a disk.
const MEMORY: f64 = 1e9;

impl LoaderStats {
    /// Returns one line that says if the loader with `threads` threads was fast enough over `time`, which stage limited
    /// it, and what to try. `local` means that it maps files on this machine, so that copying them would not help.
    pub fn advice(&self, time: Duration, threads: usize, local: bool) -> String {
        let Stages { read, decode, transform, .. } = self.stages;
        let [time, wait, read, decode, transform] = [time, self.wait, read, decode, transform].map(|t| t.as_secs_f64());
        let (time, busy) = (time.max(1e-9), read + decode + transform);
        if wait < NEGLIGIBLE * time || self.images == 0 {
            let share = 100.0 * busy / (time * threads.max(1) as f64);
            return format!("the loader keeps up; its threads were busy {:.0} % of the time", share.min(100.0));
        }
        let idle = wait > IDLE * time;
        let rate = |seconds: f64| grouped((self.images as f64 / seconds.max(1e-9)).round_ties_even() as u64);
        let speed = match idle {
            true => format!("{} img/s", rate(time)),
            false => format!("{} img/s, but {} are needed", rate(time), rate(time - wait)),
        };
        // Estimates how many threads of this speed would be fast enough. If the consumer has no other work, the
        // required speed is not known.
        let needed = (busy / (time - wait).max(1e-9)).ceil() as usize;
        let threads = match (idle, needed.saturating_sub(threads).max(1)) {
            (true, _) => "more loader threads".to_owned(),
            (false, 1) => "1 more loader thread".to_owned(),
            (false, more) => format!("{more} more loader threads"),
        };
        let from_storage = self.bytes as f64 / read.max(1e-9);
        // Advice for the stage that took longest.
        let (stage, cure) = if decode >= read && decode >= transform {
            ("decode", format!("convert the images with --resize 256 (or --raw), or use {threads}"))
        } else if transform > read {
            ("transform", format!("use {threads}"))
        } else if from_storage > MEMORY {
            ("read", format!("the records are in memory, and their checksums take the time; use {threads}"))
        } else {
            let rate = from_storage / 1e6;
            let copy = if local { "" } else { "copy to a local disk with --stage, set shuffle = \"window(8)\", or " };
            ("read", format!("each thread reads {rate:.0} MB/s; {copy}use {threads}"))
        };
        format!("{stage}-bound: {speed}; {cure}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    fn stats(images: u64, wait: f64, read: f64, decode: f64, transform: f64) -> LoaderStats {
        let seconds = Duration::from_secs_f64;
        let stages =
            Stages { read: seconds(read), decode: seconds(decode), transform: seconds(transform), ..Stages::default() };
        LoaderStats { wait: seconds(wait), images, bytes: images * 100_000, stages, ..LoaderStats::default() }
    }

    #[test]
    fn advice_names_the_bottleneck() {
        let ten = Duration::from_secs(10);
        // 6,400 images took 10 s, of which 5.82 s were for computation. So the consumer wants 1,100 images per second.
        // The two threads were always busy.
        let text = stats(6400, 4.18, 1.0, 17.0, 2.0).advice(ten, 2, false);
        assert_mentions(&text, &["decode-bound", "640", "1,100", "--resize 256", "--raw", "2 more loader threads"]);
        let text = stats(6400, 5.0, 9.0, 0.5, 0.5).advice(ten, 1, false);
        assert_mentions(&text, &["read-bound", "640", "1,280", "71 MB/s", "--stage", "1 more loader thread"]);
        let local = stats(6400, 5.0, 9.0, 0.5, 0.5).advice(ten, 1, true);
        assert_mentions(&local, &["read-bound", "71 MB/s", "1 more loader thread"]);
        assert!(!local.contains("--stage"), "{local}");
        let text = stats(6400, 5.0, 1.0, 1.0, 8.0).advice(ten, 1, false);
        assert_mentions(&text, &["transform-bound", "640", "1,280", "1 more loader thread"]);
        assert!(!text.contains("--"), "{text}");
        let text = stats(6400, 9.9, 1.0, 6.0, 1.0).advice(ten, 1, false);
        assert_mentions(&text, &["decode-bound", "640 img/s", "use more"]);
        let text = stats(6400, 5.0, 0.5, 0.1, 0.1).advice(ten, 1, false);
        assert_mentions(&text, &["read-bound", "in memory"]);
        let text = stats(6400, 0.1, 1.0, 3.0, 1.0).advice(ten, 1, false);
        assert_mentions(&text, &["keeps up", "50 %"]);
    }
}
