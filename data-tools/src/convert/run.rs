//! Conversion: a source's samples, shuffled once, dealt into shards, with indexes and
//! `dataset.json`.
//!
//! The bytes depend on the source and the options, never on the number of threads or on how often it was
//! stopped. They grow in a folder beside OUT that is renamed at the end, so OUT is whole or not
//! there.

use crate::convert::converted::Converted;
use crate::convert::journal::{Done, Journal, SKIPPED};
use crate::convert::staging::Staging;
use crate::convert::tally::Tally;
use crate::convert::work::{self as conversion, Conversion, TRAIN, Task};
use crate::convert::{pipeline, shard_writer};
use crate::error::Error;
use crate::kinds;
use crate::options::{ConvertOptions, OnBad};
use crate::source::Source;
use loaders::replace::replace;
use loaders::{Manifest, SplitManifest};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Converts the source `src` of a kind in [`crate::KINDS`] into a data set at `out`, which must be
/// empty or not exist.
///
/// # Errors
/// Unknown kind, options that make no sense, `out` taken or not writable, a source that is incomplete or damaged, a
/// full disk. Whatever happens, `out` stays as it was. Of sources of image files the finished shards stay in
/// `OUT.partial`, where the same request goes on; else nothing is left.
pub fn convert(kind: &str, src: &Path, out: &Path, options: &ConvertOptions) -> Result<Converted, Error> {
    let started = Instant::now();
    options.check()?;
    Staging::check(out)?;
    let source = kinds::open(kind, src, options)?;
    match source.fingerprint() {
        Some(fingerprint) => {
            let request = request(kind, src, options, fingerprint)?;
            resume(&*source, out, options, &request, started)
        }
        None => once(&*source, out, options, started),
    }
}

/// Like [`convert()`], for any [`Source`]; nothing stays of an attempt that fails.
///
/// # Errors
/// As [`convert()`], and what the source reports.
pub fn convert_source(source: &dyn Source, out: &Path, options: &ConvertOptions) -> Result<Converted, Error> {
    options.check()?;
    once(source, out, options, Instant::now())
}

/// All that the bytes depend on.
fn request(kind: &str, src: &Path, options: &ConvertOptions, fingerprint: u32) -> Result<Map<String, Value>, Error> {
    let src = src.canonicalize().map_err(|e| Error::io("read", src, e))?;
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
        ("validation-fraction", json!(options.validation_fraction)),
    ];
    Ok(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

fn once(source: &dyn Source, out: &Path, options: &ConvertOptions, started: Instant) -> Result<Converted, Error> {
    let tasks = conversion::plan(source, options.shards)?;
    let staging = Staging::new(out)?;
    let work = Conversion::new(source, staging.dir(), options, &tasks, BTreeMap::new(), None)?;
    pipeline::run(&work, &work.lengths(), options.jobs)?;
    let (needed, done) = (work.needed(), work.into_done());
    let converted = assemble(source, out, &tasks, done, options, started)?;
    write_rest(&converted, staging.dir(), needed)?;
    staging.publish()?;
    Ok(converted)
}

fn resume(
    source: &dyn Source,
    out: &Path,
    options: &ConvertOptions,
    request: &Map<String, Value>,
    started: Instant,
) -> Result<Converted, Error> {
    let tasks = conversion::plan(source, options.shards)?;
    let mut staging = Staging::resumable(out)?;
    // A shard that bad images were left out of is no shard of a conversion that fails on them.
    let wanted = |done: &Done| options.on_bad == OnBad::Skip || done.tally.skipped.is_empty();
    let (journal, kept) = Journal::open(staging.dir(), request, wanted)?;
    let resumed = kept.len();
    let dir = staging.dir().to_path_buf();
    let work = Conversion::new(source, &dir, options, &tasks, kept, Some(&journal))?;
    let result = pipeline::run(&work, &work.lengths(), options.jobs);
    let (needed, done) = (work.needed(), work.into_done());
    staging.keep(!done.is_empty());
    if result.is_err() {
        Journal::discard_unfinished(&dir);
    }
    let finished = done.len();
    let stopped = |source: Error| match finished {
        0 => source,
        kept => Error::Stopped { source: Box::new(source), kept, shards: tasks.len(), partial: dir.clone() },
    };
    result.map_err(stopped)?;
    let mut converted = assemble(source, out, &tasks, done, options, started).map_err(stopped)?;
    converted.resumed = resumed;
    write_rest(&converted, &dir, needed).map_err(stopped)?;
    staging.publish()?;
    Journal::remove(out)?;
    Ok(converted)
}

/// `dataset.json` and, if something was left out, the list of it.
fn write_rest(converted: &Converted, dir: &Path, needed: u64) -> Result<(), Error> {
    let explain = |e| shard_writer::explain_full(e, needed);
    if !converted.skipped.is_empty() {
        let mut text = converted.skipped.join("\n");
        text.push('\n');
        replace(&dir.join(SKIPPED), text.as_bytes()).map_err(explain)?;
    }
    converted.manifest.write(dir).map_err(explain)
}

fn assemble(
    source: &dyn Source,
    out: &Path,
    tasks: &[Task],
    mut done: BTreeMap<String, Done>,
    options: &ConvertOptions,
    started: Instant,
) -> Result<Converted, Error> {
    let mut tallies: Vec<Tally> = source.splits().iter().map(|_| Tally::default()).collect();
    let mut splits: Vec<SplitManifest> = source.splits().iter().map(|_| SplitManifest::default()).collect();
    for task in tasks {
        let Some(Done { shard, tally, .. }) = done.remove(&task.name) else {
            return Err(Error::Panic(format!("shard {} was never written", task.name)));
        };
        tallies[task.split].merge(tally, Path::new(&task.name))?;
        splits[task.split].count += shard.count;
        splits[task.split].shards.push(shard);
    }
    let (mut mean, mut std) = (Vec::new(), Vec::new());
    for ((info, split), tally) in source.splits().iter().zip(&mut splits).zip(&tallies) {
        if split.count == 0 {
            let first = tally.skipped.first().map_or("", String::as_str);
            let what = format!("not one image of this split can be used; the first: {first}");
            return Err(Error::input(Path::new(&info.name), what));
        }
        split.size = tally.one_size();
        split.sizes = tally.sizes.filter(|_| split.size.is_none());
        if info.name == TRAIN {
            (mean, std) = tally.moments.finish();
            split.measured = Some(tally.measured).filter(|&n| n < split.count);
        }
    }
    let train = source.splits().iter().find(|s| s.name == TRAIN);
    let names = source.splits().iter().map(|s| s.name.clone());
    let manifest = Manifest {
        version: loaders::dataset::VERSION,
        classes: source.classes().to_vec(),
        label_offset: source.label_offset(),
        mean,
        std,
        splits: names.zip(splits).collect(),
    };
    Ok(Converted {
        out: out.to_path_buf(),
        bytes: manifest.splits.values().flat_map(|s| &s.shards).map(|s| s.bytes).sum(),
        manifest,
        fewer_shards_than: train.filter(|s| s.len < options.shards as u64).map(|_| options.shards),
        resumed: 0,
        skipped: tallies.into_iter().flat_map(|t| t.skipped).collect(),
        notes: source.notes().to_vec(),
        elapsed: started.elapsed(),
    })
}
