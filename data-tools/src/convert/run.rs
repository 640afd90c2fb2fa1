//! Runs a conversion: writes the samples of a source in shuffled order to shards, with indexes and `dataset.json`.
//!
//! The output depends only on the source and the options, not on the number of threads or on interruptions. Files are
//! written to a folder next to OUT, which is renamed to OUT at the end. So OUT is either complete or absent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use loaders::stall::during;
use serde_json::{Map, Value, json};

use super::dataset::{ConvertedDataset, Finished};
use super::journal::Journal;
use super::order::{self, Order, Task};
use super::staging::Staging;
use super::summary::{self, ConvertSummary, Stopwatch, ThreadTimes};
use super::survey::Survey;
use super::work::Conversion;
use super::{journal, pipeline, unpack};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::raw::RawOptions;
use crate::source::Source;
use crate::splits::TRAIN;
use crate::{kinds, text};

/// Converts `src`, a source of a kind in [`crate::KINDS`], to a data set at `out`. The path `out` must not exist or
/// must be an empty folder.
///
/// # Errors
///
/// Returns an error if the kind is unknown, the options are invalid, `out` is not empty, not writable or inside the
/// source folder, the source is incomplete or damaged, or the disk is full. `out` is then unchanged. For sources of
/// image files, finished shards are kept in `OUT.partial`, and the same request continues from them. Otherwise all
/// temporary files are removed.
pub fn convert(kind: &str, src: &Path, out: &Path, options: &ConvertOptions) -> Result<ConvertSummary, Error> {
    let started = Instant::now();
    options.check()?;
    during("looking for", out, || Staging::check(out))?;
    if kinds::reads_folders(kind) {
        during("looking for", src, || Staging::check_outside(out, src))?;
    }
    let mut opening = ThreadTimes::default();
    let mut watch = Stopwatch::start();
    let Some(source) = during("opening", src, || kinds::open(kind, src, options))? else {
        return unpack::unpack(src, out, options, started);
    };
    watch.lap(&mut opening.reading);
    match source.fingerprint() {
        Some(fingerprint) => {
            let request = request(kind, src, options, fingerprint)?;
            Attempt::new(&*source, out, options, started, opening)?.resume(&request)
        }
        None => Attempt::new(&*source, out, options, started, opening)?.once(),
    }
}

/// Works like [`convert()`], but for any [`Source`]. A failed attempt leaves no files.
///
/// # Errors
///
/// Returns the same errors as [`convert()`], and errors of the source.
pub fn convert_source(source: &dyn Source, out: &Path, options: &ConvertOptions) -> Result<ConvertSummary, Error> {
    options.check()?;
    Attempt::new(source, out, options, Instant::now(), ThreadTimes::default())?.once()
}

/// Returns everything that determines the output. An unfinished conversion is resumed only if its request is equal to
/// this one.
fn request(kind: &str, src: &Path, options: &ConvertOptions, fingerprint: u32) -> Result<Map<String, Value>, Error> {
    let src = src.canonicalize().map_err(|e| Error::io("read", src, e))?;
    let splits = options.split_map.iter().map(|(name, split)| format!("{name}={split}")).collect::<Vec<_>>().join(" ");
    let mapped = (!splits.is_empty()).then(|| ("split-map", json!(splits)));
    let to_8bit = options.to_8bit.map(|scale| ("to-8bit", json!(format!("{scale:?}"))));
    let is_plain = options.bands == RawOptions::default() && options.band_names.is_empty();
    let bands = (!is_plain).then(|| ("bands", json!(format!("{:?} {:?}", options.bands, options.band_names))));
    let entries = [
        ("program", json!(env!("CARGO_PKG_VERSION"))),
        ("kind", json!(kind)),
        ("src", json!(src.display().to_string())),
        ("files", json!(format!("{fingerprint:08x}"))),
        ("shards", json!(options.shards)),
        ("seed", json!(options.seed)),
        ("resize", json!(options.resize)),
        ("quality", json!(options.quality)),
        ("raw", json!(options.raw)),
        ("entry-points", json!(options.entry_points)),
        ("validation-fraction", json!(options.validation_fraction)),
    ];
    Ok(entries
        .into_iter()
        .chain(mapped)
        .chain(to_8bit)
        .chain(bands)
        .map(|(key, value)| (key.to_string(), value))
        .collect())
}

struct Attempt<'a> {
    source: &'a dyn Source,
    out: &'a Path,
    options: &'a ConvertOptions,
    tasks: Vec<Task>,
    started: Instant,
    /// Time spent opening the source.
    opening: ThreadTimes,
}

impl<'a> Attempt<'a> {
    fn new(
        source: &'a dyn Source,
        out: &'a Path,
        options: &'a ConvertOptions,
        started: Instant,
        opening: ThreadTimes,
    ) -> Result<Self, Error> {
        let tasks = order::plan(source, options.shards)?;
        Ok(Attempt { source, out, options, tasks, started, opening })
    }

    /// Converts everything in a temporary folder, which is removed if the conversion fails.
    fn once(self) -> Result<ConvertSummary, Error> {
        let staging = Staging::new(self.out)?;
        let survey = Survey::run(self.source, self.options)?;
        let work =
            Conversion::new(self.source, staging.dir(), self.options, &self.tasks, Default::default(), None, survey)?;
        pipeline::run(&work, &work.lengths(), work.chunk(), self.options.jobs)?;
        let (needed, spent, bands, finished) = (work.needed(), work.spent(), work.bands(), work.into_finished());
        let dataset = ConvertedDataset::from_shards(self.source, &self.tasks, finished, bands)?;
        dataset.write(staging.dir(), needed)?;
        staging.publish()?;
        Ok(self.converted(dataset, 0, spent))
    }

    /// Converts the shards that earlier attempts with the same request did not finish. Finished shards are kept if this
    /// attempt fails.
    fn resume(self, request: &Map<String, Value>) -> Result<ConvertSummary, Error> {
        let mut staging = Staging::resumable(self.out)?;
        let dir = staging.dir().to_path_buf();
        let shards: Vec<&str> = self.tasks.iter().map(|task| task.name.as_str()).collect();
        let journal = Journal::lock(&mut staging, request, &shards)?;
        staging.keep(!journal.is_empty());
        let tasks: BTreeMap<&str, &Task> = self.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
        let (orders, mut changed) = (Order::all(self.source, self.options.seed), 0);
        let mut survey = Survey::run(self.source, self.options)?;
        let wanted = |shard: &Finished| {
            let is_kept = shard.can_be_kept(self.options.on_bad, &self.options.limits)?;
            let Some(task) = tasks.get(shard.shard.file.as_str()).filter(|_| is_kept) else { return Ok(false) };
            let now = journal::shard_stamp(self.source, &orders[task.split], task, self.options.jobs)?;
            // If an image changes, the value that replaces nodata changes in all shards.
            let fill = survey.fill(self.source, self.options)?;
            let is_same = now == shard.tally.stamps && shard.fill == fill;
            changed += usize::from(!is_same);
            Ok(is_same)
        };
        let kept = journal.resume(&dir, request, wanted)?;
        let resumed = kept.0.len();
        staging.keep(resumed > 0);
        let work = Conversion::new(self.source, &dir, self.options, &self.tasks, kept, Some(&journal), survey);
        let work = work.map_err(|source| self.stopped(source, resumed, &dir))?;
        let result = pipeline::run(&work, &work.lengths(), work.chunk(), self.options.jobs);
        let (needed, spent, bands, finished) = (work.needed(), work.spent(), work.bands(), work.into_finished());
        let kept = finished.0.len();
        staging.keep(kept > 0);
        if result.is_err() {
            Journal::discard_unfinished(&dir);
        }
        let stopped = |source: Error| self.stopped(source, kept, &dir);
        result.map_err(stopped)?;
        let dataset = ConvertedDataset::from_shards(self.source, &self.tasks, finished, bands).map_err(stopped)?;
        dataset.write(&dir, needed).map_err(stopped)?;
        Journal::remove(&staging.publish().map_err(stopped)?)?;
        let mut converted = self.converted(dataset, resumed, spent);
        if changed > 0 {
            let shards = text::plural(changed as u64, "finished shard");
            converted.notes.push(format!(
                "{shards} of an earlier attempt converted again: their images have changed since, or another version of trireme wrote \
                 them, which recorded the times of the images in another way"
            ));
        }
        Ok(converted)
    }

    /// Wraps the error of an attempt that leaves `kept` finished shards in the folder `partial`. Returns the error itself
    /// if no shard is finished, because the folder is then removed.
    fn stopped(&self, source: Error, kept: usize, partial: &Path) -> Error {
        // Publishing renames the folder first. If a later step fails, there is no partial folder.
        if kept == 0 || !partial.exists() {
            return source;
        }
        Error::Stopped { source: Box::new(source), kept, shards: self.tasks.len(), partial: partial.to_path_buf() }
    }

    fn converted(&self, dataset: ConvertedDataset, resumed: usize, mut spent: ThreadTimes) -> ConvertSummary {
        let ConvertedDataset { manifest, skipped, notes } = dataset;
        let train = self.source.splits().iter().find(|s| s.name == TRAIN);
        let requested = self.options.shards;
        spent += self.opening;
        ConvertSummary {
            out: self.out.to_path_buf(),
            bytes: summary::shard_bytes(&manifest),
            manifest,
            fewer_shards_than: train.filter(|s| s.len < requested as u64).map(|_| requested),
            resumed,
            skipped,
            notes: [&self.source.info().notes[..], &notes].concat(),
            spent,
            elapsed: self.started.elapsed(),
        }
    }
}
