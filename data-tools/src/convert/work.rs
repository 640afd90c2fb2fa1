//! One conversion at work: every sample of every shard that is not finished yet, read, recoded, measured, framed
//! and written.

use crate::convert::journal::{Done, Journal};
use crate::convert::pipeline::Line;
use crate::convert::shard_writer::ShardWriter;
use crate::convert::tally::Tally;
use crate::error::Error;
use crate::image::recode::{Recoder, Target};
use crate::options::{ConvertOptions, OnBad};
use crate::progress::Progress;
use crate::source::{Sample, Source};
use crate::text;
use loaders::example;
use loaders::order::Permutation;
use loaders::record::{OVERHEAD, RecordWriter};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The split that the mean and deviation of `dataset.json` describe.
pub(crate) const TRAIN: &str = "train";
/// Bytes of a line of the index, roughly: two numbers.
const INDEX_LINE: u64 = 16;
/// Samples of a split that are converted beforehand, to know what the whole takes.
const SURVEYED: u64 = 16;
/// Pixels that mean and deviation are measured on where images must be decoded for it ...
const MEASURED_PIXELS: u64 = 1 << 25;
/// ... but at least of so many images.
const MEASURED_IMAGES: u64 = 256;
const SYNSET: &str = "image/class/synset";

/// One shard to be written.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Number of its split.
    pub split: usize,
    /// File name.
    pub name: String,
    /// Positions in the shuffled order of the split.
    pub positions: Range<u64>,
}

/// All shards of all splits.
pub(crate) fn plan(source: &dyn Source, shards: usize) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (split, info) in source.splits().iter().enumerate() {
        if info.len == 0 {
            return Err(Error::input(Path::new(&info.name), "this split has no samples"));
        }
        let asked = if info.name == TRAIN { shards } else { (shards / 4).max(1) };
        let count = (asked as u64).min(info.len);
        let bound = |i: u64| (u128::from(i) * u128::from(info.len) / u128::from(count)) as u64;
        for shard in 0..count {
            tasks.push(Task {
                split,
                name: format!("{}-{shard:05}-of-{count:05}.tfrecord", info.name),
                positions: bound(shard)..bound(shard + 1),
            });
        }
    }
    Ok(tasks)
}

/// What a few samples tell of the whole.
struct Survey {
    /// Bytes of the output, estimated (exact but for the labels' names in RAW sources).
    needed: u64,
    /// Of each split: every how manieth sample is measured.
    strides: Vec<u64>,
}

/// Everything that threads share.
pub(crate) struct Conversion<'a> {
    source: &'a dyn Source,
    dir: &'a Path,
    target: Target,
    on_bad: OnBad,
    /// Shuffled order of each split.
    orders: Vec<Permutation>,
    survey: Survey,
    progress: Progress,
    journal: Option<&'a Journal>,
    /// The shards to be written.
    tasks: Vec<Task>,
    done: Mutex<BTreeMap<String, Done>>,
}

/// One thread's tools.
pub(crate) struct Worker {
    recoder: Recoder,
    sample: Sample,
    record: Vec<u8>,
}

/// Some samples on their way into a shard.
pub(crate) struct Part {
    records: RecordWriter<Vec<u8>>,
    sizes: Vec<u64>,
    tally: Tally,
}

/// A shard being written.
pub(crate) struct Open {
    writer: ShardWriter,
    name: PathBuf,
    tally: Tally,
}

impl<'a> Conversion<'a> {
    /// The conversion of `source` into shards below `dir`: those of `tasks` that are not in `done`.
    pub(crate) fn new(
        source: &'a dyn Source,
        dir: &'a Path,
        options: &ConvertOptions,
        tasks: &[Task],
        done: BTreeMap<String, Done>,
        journal: Option<&'a Journal>,
    ) -> Result<Self, Error> {
        let tasks: Vec<Task> = tasks.iter().filter(|t| !done.contains_key(&t.name)).cloned().collect();
        let samples = tasks.iter().map(|t| t.positions.end - t.positions.start).sum();
        let target = Target::new(options, source.png_as_jpeg());
        let survey = survey(source, target)?;
        Ok(Conversion {
            source,
            dir,
            target,
            on_bad: options.on_bad,
            orders: source.splits().iter().map(|s| Permutation::new(options.seed, 0, s.len)).collect(),
            survey,
            progress: Progress::new("converting", Some(samples), options.progress),
            journal,
            tasks,
            done: Mutex::new(done),
        })
    }

    /// Number of samples of each shard to be written.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        self.tasks.iter().map(|t| t.positions.end - t.positions.start).collect()
    }

    /// Estimated bytes of the output.
    pub(crate) fn needed(&self) -> u64 {
        self.survey.needed
    }

    /// The shards that are finished, by name.
    pub(crate) fn into_done(self) -> BTreeMap<String, Done> {
        self.done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// One sample into `part`.
    fn convert(&self, worker: &mut Worker, split: usize, position: u64, part: &mut Part) -> Result<(), Error> {
        let index = self.orders[split].get(position);
        let Worker { recoder, sample, record } = worker;
        self.source.sample(split, index, sample)?;
        let failed = |what: String, sample: &Sample| {
            let place = self.source.place(split, index);
            Error::input(if place.as_os_str().is_empty() { Path::new(&sample.filename) } else { &place }, what)
        };
        check_label(self.source, sample).map_err(|what| failed(what, sample))?;
        recoder.recode(sample).map_err(|what| failed(what, sample))?;
        if self.source.splits()[split].name == TRAIN && position.is_multiple_of(self.survey.strides[split]) {
            let channels = sample.channels as usize;
            let measured = recoder.pixels(sample).and_then(|pixels| part.tally.moments.add(pixels, channels));
            measured.map_err(|what| failed(what, sample))?;
            part.tally.measured += 1;
        }
        encode(self.source, sample, record);
        let (_, size) = part.records.write(record).map_err(|e| Error::io("write", self.dir, e))?;
        part.sizes.push(size);
        part.tally.see(sample.height, sample.width);
        Ok(())
    }
}

impl Line for Conversion<'_> {
    type Worker = Worker;
    type Part = Part;
    type Shard = Open;

    fn worker(&self) -> Result<Worker, Error> {
        Ok(Worker { recoder: Recoder::new(self.target)?, sample: Sample::new(), record: Vec::new() })
    }

    fn prepare(&self, worker: &mut Worker, shard: usize, samples: Range<u64>) -> Result<Part, Error> {
        let task = &self.tasks[shard];
        let mut part = Part { records: RecordWriter::new(Vec::new()), sizes: Vec::new(), tally: Tally::default() };
        let count = samples.end - samples.start;
        for position in samples.map(|s| task.positions.start + s) {
            match self.convert(worker, task.split, position, &mut part) {
                Err(error) if self.on_bad == OnBad::Skip => part.tally.skipped.push(error.to_string()),
                result => result?,
            }
        }
        self.progress.add(count);
        Ok(part)
    }

    fn open(&self, shard: usize) -> Result<Open, Error> {
        let name = PathBuf::from(&self.tasks[shard].name);
        let writer = ShardWriter::create(&self.dir.join(&name), self.survey.needed)?;
        Ok(Open { writer, name, tally: Tally::default() })
    }

    fn append(&self, shard: &mut Open, part: Part) -> Result<(), Error> {
        let records = part.records.finish().map_err(|e| Error::io("write", self.dir, e))?;
        shard.writer.append(&records, &part.sizes)?;
        shard.tally.merge(part.tally, &shard.name)
    }

    fn close(&self, _: usize, shard: Open) -> Result<(), Error> {
        let done = Done::new(self.dir, shard.writer.finish()?, shard.tally)?;
        if let Some(journal) = self.journal {
            journal.add(&done)?;
        }
        let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(done.shard.file.clone(), done);
        Ok(())
    }
}

/// Converts a few samples of each split for nothing. Those that cannot be used are for the real pass to report.
fn survey(source: &dyn Source, target: Target) -> Result<Survey, Error> {
    let (mut recoder, mut sample, mut record) = (Recoder::new(target)?, Sample::new(), Vec::new());
    let mut survey = Survey { needed: 0, strides: Vec::new() };
    for (split, info) in source.splits().iter().enumerate() {
        let count = SURVEYED.min(info.len);
        let (mut seen, mut bytes, mut area, mut raw) = (0u64, 0u64, 0u64, false);
        for i in 0..count {
            let read = source.sample(split, i * info.len / count, &mut sample);
            if read.is_err() || recoder.recode(&mut sample).is_err() {
                continue;
            }
            encode(source, &sample, &mut record);
            seen += 1;
            bytes += record.len() as u64 + OVERHEAD + INDEX_LINE;
            area += u64::from(sample.height) * u64::from(sample.width);
            raw = sample.format == loaders::Format::Raw;
        }
        survey.needed = survey.needed.saturating_add((bytes / seen.max(1)).saturating_mul(info.len));
        let images = MEASURED_PIXELS / (area / seen.max(1)).max(1);
        let stride = info.len.div_ceil(images.max(MEASURED_IMAGES)).max(1);
        survey.strides.push(if raw { 1 } else { stride });
    }
    Ok(survey)
}

fn check_label(source: &dyn Source, sample: &Sample) -> Result<(), String> {
    let classes = source.classes().len();
    match sample.label as usize {
        label if label < classes => Ok(()),
        label => Err(format!("label {label} is out of range; there are {}", text::classes(classes))),
    }
}

/// The record of a sample as bytes; `out` is overwritten.
fn encode(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    out.clear();
    let example = sample.example(source.text(sample.label), source.label_offset());
    let synset = source.synset(sample.label).map(|synset| (SYNSET, synset));
    example::encode_with(&example, synset.as_slice(), out);
}
