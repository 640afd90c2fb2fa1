//! The conversion at work: every sample of every shard that is not finished yet, read, recoded, measured, framed and written.

use super::finished::Finished;
use super::journal::Journal;
use super::order::Order;
use super::pipeline::Work;
use super::plan::{TRAIN, Task};
use super::record;
use super::shard_writer::ShardWriter;
use super::spent::{Clock, Spent};
use super::survey::Survey;
use super::tally::Tally;
use crate::error::Error;
use crate::image::recode::Recoder;
use crate::image::target::Target;
use crate::options::{ConvertOptions, OnBad};
use crate::progress::Progress;
use crate::source::{Sample, Source};
use crate::text;
use loaders::Limits;
use loaders::record::RecordWriter;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What all threads of a conversion share.
pub(super) struct Conversion<'a> {
    source: &'a dyn Source,
    dir: &'a Path,
    target: Target,
    limits: Limits,
    on_bad: OnBad,
    /// Shuffled order of each split.
    orders: Vec<Order>,
    survey: Survey,
    progress: Progress,
    journal: Option<&'a Journal>,
    /// The shards to be written.
    tasks: Vec<Task>,
    finished: Mutex<BTreeMap<String, Finished>>,
    decoding: Clock,
    writing: Clock,
}

/// One thread's recoder and buffers.
pub(super) struct Worker {
    recoder: Recoder,
    sample: Sample,
    record: Vec<u8>,
}

/// A chunk of converted samples.
pub(super) struct Chunk {
    records: RecordWriter<Vec<u8>>,
    sizes: Vec<u64>,
    tally: Tally,
}

/// A shard being written.
pub(super) struct OpenShard {
    writer: ShardWriter,
    name: PathBuf,
    tally: Tally,
}

impl<'a> Conversion<'a> {
    /// The conversion of `source` into shards below `dir`: those of `tasks` that are not in `finished`.
    pub fn new(
        source: &'a dyn Source,
        dir: &'a Path,
        options: &ConvertOptions,
        tasks: &[Task],
        finished: BTreeMap<String, Finished>,
        journal: Option<&'a Journal>,
    ) -> Result<Self, Error> {
        let tasks: Vec<Task> = tasks.iter().filter(|t| !finished.contains_key(&t.name)).cloned().collect();
        let samples = tasks.iter().map(Task::samples).sum();
        let target = Target::new(options, source.png_as_jpeg());
        let splits = source.splits().iter().enumerate();
        let orders = splits.map(|(at, split)| Order::new(options.seed, split.len, source.blocks(at)));
        Ok(Conversion {
            source,
            dir,
            target,
            limits: options.limits,
            on_bad: options.on_bad,
            orders: orders.collect(),
            survey: Survey::of(source, target, options.limits)?,
            progress: Progress::new("converting", Some(samples), options.progress),
            journal,
            tasks,
            finished: Mutex::new(finished),
            decoding: Clock::default(),
            writing: Clock::default(),
        })
    }

    /// Number of samples of each shard to be written.
    pub fn lengths(&self) -> Vec<u64> {
        self.tasks.iter().map(Task::samples).collect()
    }

    /// Estimated bytes of the output.
    pub fn needed(&self) -> u64 {
        self.survey.needed
    }

    /// What the threads have spent so far.
    pub fn spent(&self) -> Spent {
        Spent { decoding: self.decoding.sum(), writing: self.writing.sum() }
    }

    /// The shards that are finished, by name.
    pub fn into_finished(self) -> BTreeMap<String, Finished> {
        self.finished.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts one sample into `chunk`; the error names its file.
    fn convert(&self, worker: &mut Worker, split: usize, position: u64, chunk: &mut Chunk) -> Result<(), Error> {
        let index = self.orders[split].get(position);
        self.source.sample(split, index, &mut worker.sample)?;
        let is_measured =
            self.source.splits()[split].name == TRAIN && position.is_multiple_of(self.survey.strides[split]);
        self.decoding.time(|| self.recode(worker, is_measured, &mut chunk.tally)).map_err(|what| {
            let place = self.source.place(split, index);
            let name = Path::new(&worker.sample.filename);
            Error::input(if place.as_os_str().is_empty() { name } else { &place }, what)
        })?;
        let Worker { sample, record, .. } = worker;
        let written = self.writing.time(|| {
            record::encode(self.source, sample, record);
            chunk.records.write(record)
        });
        let (_, size) = written.map_err(|e| Error::io("write", self.dir, e))?;
        chunk.sizes.push(size);
        chunk.tally.see(sample.height, sample.width);
        Ok(())
    }

    /// Recodes the worker's sample, and measures its pixels if it `is_measured`.
    fn recode(&self, worker: &mut Worker, is_measured: bool, tally: &mut Tally) -> Result<(), String> {
        let Worker { recoder, sample, .. } = worker;
        check_label(self.source, sample)?;
        recoder.recode(sample)?;
        if is_measured {
            let channels = sample.channels as usize;
            tally.moments.add(recoder.pixels(sample)?, channels)?;
            tally.measured += 1;
        }
        Ok(())
    }
}

impl Work for Conversion<'_> {
    type Worker = Worker;
    type Chunk = Chunk;
    type Shard = OpenShard;

    fn worker(&self) -> Result<Worker, Error> {
        Ok(Worker { recoder: Recoder::new(self.target, self.limits)?, sample: Sample::new(), record: Vec::new() })
    }

    fn prepare(&self, worker: &mut Worker, shard: usize, samples: Range<u64>) -> Result<Chunk, Error> {
        let task = &self.tasks[shard];
        let mut chunk = Chunk { records: RecordWriter::new(Vec::new()), sizes: Vec::new(), tally: Tally::default() };
        let count = samples.end - samples.start;
        for position in samples.map(|s| task.positions.start + s) {
            match self.convert(worker, task.split, position, &mut chunk) {
                Err(error) if self.on_bad == OnBad::Skip => chunk.tally.skipped.push(error.to_string()),
                result => result?,
            }
        }
        self.progress.add(count);
        Ok(chunk)
    }

    fn open(&self, shard: usize) -> Result<OpenShard, Error> {
        let name = PathBuf::from(&self.tasks[shard].name);
        let writer = ShardWriter::create(&self.dir.join(&name), self.survey.needed)?;
        Ok(OpenShard { writer, name, tally: Tally::default() })
    }

    fn append(&self, shard: &mut OpenShard, chunk: Chunk) -> Result<(), Error> {
        let records = chunk.records.finish().map_err(|e| Error::io("write", self.dir, e))?;
        self.writing.time(|| shard.writer.append(&records, &chunk.sizes))?;
        shard.tally.merge(chunk.tally, &shard.name)
    }

    fn close(&self, _: usize, shard: OpenShard) -> Result<(), Error> {
        let whole = self.writing.time(|| shard.writer.finish())?;
        let finished = Finished::new(self.dir, whole, shard.tally)?;
        if let Some(journal) = self.journal {
            journal.add(&finished)?;
        }
        let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(finished.shard.file.clone(), finished);
        Ok(())
    }
}

fn check_label(source: &dyn Source, sample: &Sample) -> Result<(), String> {
    let classes = source.classes().len();
    let labels = if source.multi_label() { sample.labels.as_slice() } else { std::slice::from_ref(&sample.label) };
    match labels.iter().find(|label| **label as usize >= classes) {
        None => Ok(()),
        Some(label) => Err(format!("label {label} is out of range; there are {}", text::classes(classes))),
    }
}
