//! The work of a conversion: reads, recodes, measures and writes all samples of the unfinished shards.

use super::dataset::{Finished, FinishedShards};
use super::journal::{self, Journal};
use super::order::{CHUNK_SAMPLES, Order, Task};
use super::pipeline::Work;
use super::shard_writer::{self, CompleteShard, OutputLimit, ShardWriter};
use super::summary::{SampleStats, Stopwatch, ThreadTimes};
use super::survey::{Kind, Survey, read_sample, unusable};
use crate::dir;
use crate::error::Error;
use crate::image::band_stats::{self, Floats, Histograms};
use crate::image::recode::{Recoder, Target};
use crate::options::{ConvertOptions, OnBad, To8Bit};
use crate::pool::lock;
use crate::progress::Progress;
use crate::source::{Sample, Source};
use crate::splits::TRAIN;
use base::text::plural;
use loaders::record::append_record;
use loaders::{Bands, Format, LabelKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Target size of a chunk of records in bytes. Large enough that threads rarely wait for each other and that each write
/// call is worthwhile.
const CHUNK_BYTES: u64 = 1 << 18;
/// From this number of samples per chunk on, only one sample in [`TIMED_EVERY`] is timed, because reading the clock takes as
/// long as summing a small image.
const FEW_SAMPLES: u64 = 32;
const TIMED_EVERY: u64 = 8;
/// The source is told the index of a sample this many samples before it is read, so that it can start reading the file.
const PREFETCH_DISTANCE: usize = 2;
/// The highest number of shards that are closed together.
const MAX_CLOSED_TOGETHER: u64 = 24;
/// The highest total size of the histograms of shards that are closed together, unless a single shard has more.
const HISTOGRAM_BYTES: u64 = 256 << 20;

/// The state shared by all threads of a conversion.
pub(super) struct Conversion<'a> {
    source: &'a dyn Source,
    dir: &'a Path,
    options: &'a ConvertOptions,
    /// The shuffled order of each split.
    orders: Vec<Order>,
    survey: Survey,
    /// The band means, which replace nodata values. Empty without nodata values.
    fill: Vec<f64>,
    limit: OutputLimit,
    progress: Progress,
    journal: Option<&'a Journal>,
    tasks: Vec<Task>,
    finished: Mutex<BTreeMap<String, Finished>>,
    /// The histograms of the shards in `finished`.
    histograms: Histograms,
    /// For each task, the histograms of the chunks that are prepared.
    prepared: Vec<Histograms>,
    spent: Mutex<ThreadTimes>,
    /// Buffers of written chunks, to be reused.
    spare: Mutex<Vec<Vec<u8>>>,
}

pub(super) struct Worker<'a> {
    recoder: Recoder<'a>,
    sample: Sample,
    /// Indices of the samples in the current chunk.
    indices: Vec<u64>,
}

/// A sample of a split: its index in the source and its position in the shuffled order.
#[derive(Clone, Copy)]
struct SamplePosition {
    split: usize,
    index: u64,
    position: u64,
}

pub(super) struct Chunk {
    /// Records with their framing.
    records: Vec<u8>,
    sizes: Vec<u64>,
    tally: SampleStats,
    spent: ThreadTimes,
}

/// A completely written shard that may not be synced to disk yet.
pub(super) struct UnsyncedShard {
    shard: CompleteShard,
    tally: SampleStats,
}

pub(super) struct OpenShard {
    number: usize,
    writer: ShardWriter,
    name: PathBuf,
    tally: SampleStats,
}

impl<'a> Conversion<'a> {
    /// Prepares the conversion of `source` to shards in `dir`, for the shards of `tasks` that are not in `finished`.
    /// `histograms` has the histograms of the shards in `finished`.
    pub fn new(
        source: &'a dyn Source,
        dir: &'a Path,
        options: &'a ConvertOptions,
        tasks: &[Task],
        (finished, histograms): FinishedShards,
        journal: Option<&'a Journal>,
        mut survey: Survey,
    ) -> Result<Self, Error> {
        let tasks: Vec<Task> = tasks.iter().filter(|t| !finished.contains_key(&t.name)).cloned().collect();
        let samples = tasks.iter().map(Task::samples).sum();
        let before = finished.values().map(|shard| shard.shard.bytes).sum();
        let limit = OutputLimit::new(options.max_output, source.bytes(), before);
        limit.check_estimate(dir, survey.needed)?;
        let fill = survey.fill(source, options)?.to_vec();
        let prepared = tasks.iter().map(|_| Histograms::default()).collect();
        Ok(Conversion {
            source,
            dir,
            options,
            orders: Order::all(source, options.seed),
            survey,
            fill,
            limit,
            progress: Progress::new("converting", Some(samples), options.progress),
            journal,
            tasks,
            finished: Mutex::new(finished),
            histograms,
            prepared,
            spent: Mutex::default(),
            spare: Mutex::default(),
        })
    }

    pub fn lengths(&self) -> Vec<u64> {
        self.tasks.iter().map(Task::samples).collect()
    }

    pub fn chunk(&self) -> u64 {
        let samples: u64 = self.source.splits().iter().map(|split| split.len).sum();
        let bytes = (self.survey.needed / samples.max(1)).max(1);
        (CHUNK_BYTES / bytes).clamp(1, CHUNK_SAMPLES)
    }

    /// Returns the estimated size of the output in bytes.
    pub fn needed(&self) -> u64 {
        self.survey.needed
    }

    /// Returns the bands' type, count and names if `dataset.json` needs them, and the options for reading files.
    pub fn bands(&self) -> Bands {
        let Some(kind) = &self.survey.kind else { return Bands::default() };
        let to_8bit = match self.options.to_8bit {
            Some(To8Bit::Range(min, max)) => Some([min, max]),
            Some(To8Bit::Whole) | None => None,
        };
        let nodata = kind.nodata;
        let (dtype, channels) = (kind.dtype, Some(kind.channels));
        let bands = Bands { dtype, channels, names: self.options.band_names.clone(), nodata, ..Bands::default() };
        let bands = if bands.need_version() { bands } else { Bands { nodata, ..Bands::default() } };
        Bands { reading: self.options.bands.reading(), to_8bit, ..bands }
    }

    pub fn spent(&self) -> ThreadTimes {
        *lock(&self.spent)
    }

    pub fn into_finished(self) -> FinishedShards {
        (self.finished.into_inner().unwrap_or_else(PoisonError::into_inner), self.histograms)
    }

    /// Runs `part` and adds its duration to the field that `sum` selects.
    fn timed<R>(&self, sum: impl FnOnce(&mut ThreadTimes) -> &mut Duration, part: impl FnOnce() -> R) -> R {
        let mut watch = Stopwatch::start();
        let result = part();
        watch.lap(sum(&mut lock(&self.spent)));
        result
    }

    /// Converts one sample and appends it to `chunk`. Errors name the sample's file.
    fn convert(
        &self,
        worker: &mut Worker<'a>,
        at: SamplePosition,
        chunk: &mut Chunk,
        watch: &mut Stopwatch,
    ) -> Result<(), Error> {
        let SamplePosition { split, index, position } = at;
        if self.journal.is_some() {
            // Stamp the file before reading it. If it changes during the read, a later attempt detects the change.
            let stamp = journal::sample_stamp(self.source, split, index);
            chunk.tally.stamps = chunk.tally.stamps.wrapping_add(stamp);
        }
        let read = read_sample(self.source, split, index, &mut worker.sample);
        watch.lap(&mut chunk.spent.reading);
        read?;
        self.limit.read(worker.sample.encoded.len());
        let is_measured =
            self.source.splits()[split].name == TRAIN && position.is_multiple_of(self.survey.strides[split]);
        let recoded = self.recode(worker, is_measured, &mut chunk.tally);
        watch.lap(&mut chunk.spent.decoding);
        recoded.map_err(|what| unusable(self.source, split, index, &worker.sample, what))?;
        let sample = &worker.sample;
        if self.source.splits()[split].name == TRAIN {
            Floats::merge_all(&mut chunk.tally.targets, sample.targets.floats().values().map(Floats::of));
        }
        chunk.sizes.push(append_record(&mut chunk.records, |out| shard_writer::encode(self.source, sample, out)));
        watch.lap(&mut chunk.spent.writing);
        chunk.tally.add_size(sample.height, sample.width);
        chunk.tally.entry_points += u64::from(!sample.entry_points.is_empty());
        let ignored = worker.recoder.ignored;
        chunk.tally.more_pages += u64::from(ignored.pages);
        chunk.tally.unused_nodata += u64::from(ignored.nodata);
        Ok(())
    }

    /// Syncs shards to disk and adds them to the journal.
    fn finish(&self, shards: Vec<UnsyncedShard>) -> Result<(), Error> {
        let (complete, tallies): (Vec<CompleteShard>, Vec<SampleStats>) =
            shards.into_iter().map(|s| (s.shard, s.tally)).unzip();
        shard_writer::sync(&complete)?;
        let finished = complete.into_iter().zip(tallies);
        let finished = finished
            .map(|(shard, tally)| Finished::new(self.dir, shard.manifest, tally, &self.options.limits, &self.fill));
        let mut finished = finished.collect::<Result<Vec<Finished>, Error>>()?;
        if let Some(journal) = self.journal {
            dir::sync(self.dir)?;
            journal.add(&finished, self.needed())?;
        }
        finished.iter_mut().try_for_each(|shard| self.histograms.take(&mut shard.tally.bands, self.dir))?;
        lock(&self.finished).extend(finished.into_iter().map(|shard| (shard.shard.file.clone(), shard)));
        Ok(())
    }

    /// Recodes the worker's sample. Also measures its pixels if `is_measured` is true.
    fn recode(&self, worker: &mut Worker<'a>, is_measured: bool, tally: &mut SampleStats) -> Result<(), String> {
        let Worker { recoder, sample, .. } = worker;
        check_label(self.source, sample)?;
        recoder.recode(sample)?;
        let Some(kind) = &self.survey.kind else { return Ok(()) };
        let found = Kind::of(sample, recoder.nodata);
        kind.check(&found)?;
        if is_measured {
            match kind.measures_bands() {
                true => kind.measure(recoder, sample, &mut tally.bands)?,
                false => tally.moments.add(recoder.pixels(sample)?, sample.channels as usize)?,
            }
            tally.measured += 1;
        }
        if let Some(nodata) = kind.nodata.filter(|_| sample.format == Format::Raw) {
            sample.values().replace(&mut sample.encoded, nodata, &self.fill);
        }
        Ok(())
    }
}

impl<'a> Work for Conversion<'a> {
    type Worker = Worker<'a>;
    type Chunk = Chunk;
    type Shard = OpenShard;
    type Unsynced = UnsyncedShard;

    fn worker(&self) -> Result<Worker<'a>, Error> {
        let recoder = Recoder::new(Target::new(self.options, self.source.png_as_jpeg()), self.options.limits)?;
        Ok(Worker { recoder, sample: Sample::default(), indices: Vec::new() })
    }

    fn prepare(&self, worker: &mut Worker<'a>, shard: usize, samples: Range<u64>) -> Result<Chunk, Error> {
        let Task { split, positions, .. } = &self.tasks[shard];
        let records = lock(&self.spare).pop().unwrap_or_default();
        let mut chunk =
            Chunk { records, sizes: Vec::new(), tally: SampleStats::default(), spent: ThreadTimes::default() };
        let count = samples.end - samples.start;
        let (started, timed) = (Instant::now(), if count < FEW_SAMPLES { 1 } else { TIMED_EVERY });
        let positions = positions.start + samples.start..positions.start + samples.end;
        let mut indices = std::mem::take(&mut worker.indices);
        indices.clear();
        self.orders[*split].extend(positions.clone(), &mut indices);
        for (number, position) in positions.enumerate() {
            if let Some(&next) = indices.get(number + PREFETCH_DISTANCE) {
                self.source.prefetch(*split, next);
            }
            let at = SamplePosition { split: *split, index: indices[number], position };
            let mut watch = Stopwatch::start_if((number as u64).is_multiple_of(timed));
            match self.convert(worker, at, &mut chunk, &mut watch) {
                Err(error) if self.options.on_bad == OnBad::Skip => chunk.tally.skipped.push(error.to_string()),
                result => result?,
            }
        }
        worker.indices = indices;
        self.prepared[shard].take(&mut chunk.tally.bands, Path::new(&self.tasks[shard].name))?;
        *lock(&self.spent) += chunk.spent.extended_to(started.elapsed());
        self.progress.add(count);
        Ok(chunk)
    }

    fn open(&self, shard: usize) -> Result<OpenShard, Error> {
        let name = PathBuf::from(&self.tasks[shard].name);
        let writer = ShardWriter::create(&self.dir.join(&name), self.survey.needed)?;
        Ok(OpenShard { number: shard, writer, name, tally: SampleStats::default() })
    }

    fn append(&self, shard: &mut OpenShard, chunk: Chunk) -> Result<(), Error> {
        let mut records = chunk.records;
        self.limit.write(self.dir, records.len())?;
        self.timed(|spent| &mut spent.writing, || shard.writer.append(&records, &chunk.sizes))?;
        records.clear();
        lock(&self.spare).push(records);
        shard.tally.merge(chunk.tally, &shard.name)
    }

    fn complete(&self, shard: OpenShard) -> Result<UnsyncedShard, Error> {
        let OpenShard { number, writer, name, mut tally } = shard;
        self.prepared[number].put_into(&mut tally.bands, &name)?;
        let shard = self.timed(|spent| &mut spent.syncing, || writer.complete())?;
        Ok(UnsyncedShard { shard, tally })
    }

    fn closed_together(&self) -> usize {
        let bands = self.survey.kind.as_ref().filter(|kind| kind.measures_bands()).map_or(0, |kind| kind.channels);
        most_closed_together(bands)
    }

    fn close(&self, shards: Vec<UnsyncedShard>) -> Result<(), Error> {
        self.timed(|spent| &mut spent.syncing, || self.finish(shards))
    }
}

/// Returns how many shards may be closed together. A shard keeps a histogram per band until it is closed.
fn most_closed_together(bands: u32) -> usize {
    (HISTOGRAM_BYTES / (u64::from(bands) * band_stats::HISTOGRAM_BYTES).max(1)).clamp(1, MAX_CLOSED_TOGETHER) as usize
}

fn check_label(source: &dyn Source, sample: &Sample) -> Result<(), String> {
    let classes = source.classes().len();
    let labels = match source.label_kind() {
        LabelKind::OneClass => std::slice::from_ref(&sample.label),
        LabelKind::Classes => sample.labels.as_slice(),
        LabelKind::Numbers => {
            let (expected, got) = (source.targets().len(), sample.targets.floats().values().count());
            return if got == expected {
                Ok(())
            } else {
                Err(format!("expected {expected} numbers, one for each target, got {got}"))
            };
        }
    };
    match labels.iter().find(|label| **label as usize >= classes) {
        None => Ok(()),
        Some(label) => Err(format!("label {label} is out of range; the data set has {}", plural(classes, "class"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_with_many_bands_are_closed_alone() {
        assert_eq!([0, 13, 100, 1024].map(most_closed_together), [24, 24, 5, 1]);
    }
}
