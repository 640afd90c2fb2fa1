//! A data set of TFRecords from those of another program: each shard's records are copied as they are, unpacked if they are compressed,
//! and then indexed. The order of the records stays.

use super::converted::Converted;
use super::record_stream::RecordStream;
use super::shard_writer::ShardWriter;
use super::spent::Spent;
use super::staging::Staging;
use crate::dir;
use crate::error::Error;
use crate::inspect::{ShardFile, discover, index_named};
use crate::options::ConvertOptions;
use crate::pool;
use crate::progress::Progress;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const HINT: &str = "expected a folder with TFRecord shards, named like train-00000-of-00016.tfrecord";

/// A shard to copy.
struct Shard {
    from: PathBuf,
    to: String,
}

/// Copies the shards in the folder `src` into a data set at `out`.
///
/// # Errors
/// No shards, or not all of a split; a record that is damaged or no tf.Example with an image; `out` taken; a full disk.
pub(super) fn unpack(src: &Path, out: &Path, options: &ConvertOptions, started: Instant) -> Result<Converted, Error> {
    dir::check(src, HINT)?;
    let name = |s: &ShardFile| format!("{}-{:05}-of-{:05}.tfrecord", s.split, s.number, s.of);
    if fs::read_dir(src).map_err(|e| Error::io("read", src, e))?.next().is_none() {
        return Err(Error::Missing { path: src.join("train-00000-of-00016.tfrecord"), hint: HINT.to_string() });
    }
    let found = discover(src)?;
    let shards: Vec<Shard> = found.iter().map(|s| Shard { from: src.join(&s.file), to: name(s) }).collect();
    let sizes = shards.iter().filter_map(|shard| fs::metadata(&shard.from).ok()).map(|meta| meta.len());
    let needed = sizes.sum();
    let staging = Staging::new(out)?;
    let progress = Progress::new("copying", None, options.progress);
    pool::run(shards.len(), options.jobs, |i| copy(&shards[i], staging.dir(), needed, options, &progress))?;
    drop(progress);
    let indexed = index_named(staging.dir(), src)?;
    staging.publish()?;
    Ok(Converted {
        out: out.to_path_buf(),
        bytes: indexed.manifest.splits.values().flat_map(|s| &s.shards).map(|s| s.bytes).sum(),
        manifest: indexed.manifest,
        fewer_shards_than: None,
        resumed: 0,
        skipped: Vec::new(),
        notes: Vec::new(),
        spent: Spent::default(),
        elapsed: started.elapsed(),
    })
}

fn copy(shard: &Shard, dir: &Path, needed: u64, options: &ConvertOptions, progress: &Progress) -> Result<(), Error> {
    let mut stream = RecordStream::open(&shard.from, &options.limits)?;
    let mut writer = ShardWriter::create(&dir.join(&shard.to), needed)?;
    let mut counter = progress.counter();
    while let Some(record) = stream.next()? {
        writer.append(record, &[record.len() as u64])?;
        counter.tick();
    }
    writer.finish().map(drop)
}
