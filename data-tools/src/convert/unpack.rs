//! Converts TFRecords that other programs wrote. Copies the records of each shard unchanged, decompresses them if necessary,
//! and then indexes the shards. The order of the records does not change.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

use base::text::printable;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use loaders::record::{HEADER, OVERHEAD, read_record, record_size};
use loaders::stall::during;
use loaders::{Compression, Limits, example, regular};

use super::dataset::write_skipped;
use super::shard_writer::{self, OutputLimit, ShardWriter};
use super::staging::Staging;
use super::summary::{self, ConvertSummary, Stopwatch, ThreadTimes};
use crate::error::Error;
use crate::image::pixels::PixelDecoder;
use crate::inspect::{IndexOptions, ShardFile, discover, index_with_options};
use crate::options::{ConvertOptions, OnBad};
use crate::progress::Progress;
use crate::source::MAX_CLASS;
use crate::{dir, pool};

const HINT: &str = "expected a folder with TFRecord shards, named like train-00000-of-00016.tfrecord";

/// The remedy for shards that a new `dataset.json` cannot describe.
const CURE: &str = "`convert tfrecord` cannot describe such records in a new dataset.json. Put the unpacked shards (GZIP: gzip -dc OLD > \
                    NEW) next to the dataset.json of their conversion, and run `trireme data index`. Without one, write it as \
                    docs/formats.md describes";

/// The highest number of copied shards that wait to be synced to disk. Their files stay open, and they are synced
/// together.
const MAX_UNSYNCED: usize = 16;

/// Number of record bytes after the payload.
const FOOTER: usize = OVERHEAD as usize - HEADER;

struct Shard {
    from: PathBuf,
    to: String,
}

/// Copies the shards in the folder `src` to a data set at `out`. Returns an error if shards of a split are missing, a
/// record is damaged or not a tf.Example with an image, `out` is not empty, or the disk is full.
pub(super) fn unpack(
    src: &Path,
    out: &Path,
    options: &ConvertOptions,
    started: Instant,
) -> Result<ConvertSummary, Error> {
    dir::check(src, HINT)?;
    let name = |s: &ShardFile| format!("{}-{:05}-of-{:05}.tfrecord", s.split, s.number, s.of);
    if fs::read_dir(src).map_err(|e| Error::io("read", src, e))?.next().is_none() {
        return Err(Error::missing(src.join("train-00000-of-00016.tfrecord"), HINT));
    }
    let found = discover(src, &options.split_map)?;
    let shards: Vec<Shard> = found.iter().map(|s| Shard { from: src.join(&s.file), to: name(s) }).collect();
    let sizes = shards.iter().filter_map(|shard| fs::metadata(&shard.from).ok()).map(|meta| meta.len());
    let needed = sizes.sum();
    let staging = Staging::new(out)?;
    let copying = Copying {
        dir: staging.dir(),
        needed,
        limit: OutputLimit::new(options.max_output, Some(needed), 0),
        options,
        progress: Progress::new("copying", None, options.progress),
        spent: Mutex::default(),
        skipped: Mutex::default(),
    };
    let (mut spent, skipped) = copying.run(&shards)?;
    let copies = found.iter().map(|shard| ShardFile { file: name(shard), ..shard.clone() }).collect();
    let how = IndexOptions {
        names: src,
        write: false,
        jobs: options.jobs,
        progress: options.progress,
        shards: Some(copies),
        split_map: &[],
        on_bad: options.on_bad,
        cure: CURE,
    };
    let indexed = index_with_options(staging.dir(), &how)
        .map_err(|error| name_source_file(error, staging.dir(), src, &shards))?;
    write_skipped(staging.dir(), &skipped)?;
    spent.decoding += indexed.scanning;
    staging.publish()?;
    Ok(ConvertSummary {
        out: out.to_path_buf(),
        bytes: summary::shard_bytes(&indexed.manifest),
        manifest: indexed.manifest,
        fewer_shards_than: None,
        resumed: 0,
        skipped,
        notes: indexed.notes,
        spent,
        elapsed: started.elapsed(),
    })
}

/// Rewrites an error about a temporary copy so that it names the source file.
fn name_source_file(error: Error, dir: &Path, src: &Path, shards: &[Shard]) -> Error {
    let source = |path: &Path| {
        let shard = shards.iter().find(|shard| dir.join(&shard.to) == path);
        shard.map(|shard| shard.from.clone()).or_else(|| Some(src.join(path.strip_prefix(dir).ok()?)))
    };
    match error {
        Error::Record { shard, record, offset, what } => {
            Error::Record { shard: source(&shard).unwrap_or(shard), record, offset, what }
        }
        Error::Input { path, what } => Error::Input { path: source(&path).unwrap_or(path), what },
        other => other,
    }
}

/// The state shared by the threads that copy shards.
struct Copying<'a> {
    dir: &'a Path,
    /// Total size of the shards in bytes. For compressed shards this is too low.
    needed: u64,
    limit: OutputLimit,
    options: &'a ConvertOptions,
    progress: Progress,
    spent: Mutex<ThreadTimes>,
    /// A message for each skipped record, with its shard number.
    skipped: Mutex<Vec<(usize, String)>>,
}

impl Copying<'_> {
    /// Copies all shards in parallel while another thread syncs them to disk. Also returns a message for each skipped
    /// record.
    fn run(self, shards: &[Shard]) -> Result<(ThreadTimes, Vec<String>), Error> {
        let (sender, whole) = crossbeam_channel::bounded::<ShardWriter>(MAX_UNSYNCED);
        thread::scope(|scope| {
            let this = &self;
            let close_all = move || {
                while let Ok(first) = whole.recv() {
                    this.close(std::iter::once(first).chain(whole.try_iter().take(MAX_UNSYNCED)))?;
                }
                Ok(())
            };
            let closing = Builder::new().spawn_scoped(scope, close_all).ok();
            let copied = pool::run(shards.len(), this.options.jobs, |i| {
                let shard = this.copy(i, &shards[i])?;
                if closing.is_none() {
                    // The system could not create the closing thread, so this thread closes the shard.
                    return this.close(std::iter::once(shard));
                }
                // Sending fails if the closing thread has ended with an error, which `closing.join()` returns.
                let unheard = |_| Error::Panic("a shard could not be synced to disk".to_string());
                sender.send(shard).map_err(unheard)
            });
            drop(sender);
            let closed = closing.map_or(Ok(Ok(())), |closing| closing.join());
            let closed = closed.unwrap_or_else(|cause| Err(Error::Panic(loaders::panic_text(&*cause))));
            closed.and(copied.map(drop))
        })?;
        let mut skipped = self.skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        skipped.sort_by_key(|(shard, _)| *shard);
        let skipped = skipped.into_iter().map(|(_, line)| printable(&line).into_owned()).collect();
        Ok((self.spent.into_inner().unwrap_or_else(PoisonError::into_inner), skipped))
    }

    /// Completes shards, then syncs all of them to disk.
    fn close(&self, shards: impl Iterator<Item = ShardWriter>) -> Result<(), Error> {
        let (mut spent, mut watch) = (ThreadTimes::default(), Stopwatch::start());
        let complete = shards.map(ShardWriter::complete).collect::<Result<Vec<_>, Error>>()?;
        shard_writer::sync(&complete)?;
        watch.lap(&mut spent.syncing);
        self.add(spent);
        Ok(())
    }

    /// Copies the records in shard `number`, and skips unusable records if `--on-bad skip` is set.
    fn copy(&self, number: usize, shard: &Shard) -> Result<ShardWriter, Error> {
        let (mut spent, mut watch) = (ThreadTimes::default(), Stopwatch::start());
        let mut stream = RecordStream::open(&shard.from, &self.options.limits)?;
        let mut writer = ShardWriter::create(&self.dir.join(&shard.to), self.needed)?;
        let mut counter = self.progress.counter();
        let mut skipped = Vec::new();
        loop {
            let at = stream.position();
            let record = stream.next()?;
            watch.lap(&mut spent.reading);
            let Some(record) = record else { break };
            if self.options.on_bad == OnBad::Skip
                && let Err(what) = check_record(record)
            {
                skipped.push((number, Error::record(&shard.from, at, what).to_string()));
                continue;
            }
            self.limit.write(self.dir, record.len())?;
            writer.append(record, &[record.len() as u64])?;
            counter.tick();
            watch.lap(&mut spent.writing);
        }
        self.add(spent);
        pool::lock(&self.skipped).extend(skipped);
        Ok(writer)
    }

    fn add(&self, spent: ThreadTimes) {
        *pool::lock(&self.spent) += spent;
    }
}

/// Returns an error if a framed record does not hold an image with a valid class label.
fn check_record(record: &[u8]) -> Result<(), String> {
    let payload = &record[HEADER..record.len() - FOOTER];
    let example = example::parse(payload).map_err(|e| e.to_string())?;
    if example.labels.is_list() {
        return Err(format!("{} labels; expected one", example.labels.iter().count()));
    }
    match (0..=MAX_CLASS).contains(&example.label) {
        true => PixelDecoder::default().reduced(&example).map(drop),
        false => Err(format!("label {}; expected a class from 0 to {MAX_CLASS}", example.label)),
    }
}

pub(super) struct RecordStream {
    path: PathBuf,
    stream: Box<dyn Read>,
    compressed: Option<Compression>,
    /// The highest allowed record size in bytes.
    most: u64,
    record: u64,
    offset: u64,
    /// The current record with its framing.
    bytes: Vec<u8>,
}

impl RecordStream {
    /// Opens a plain or compressed file of records.
    pub(super) fn open(path: &Path, limits: &Limits) -> Result<Self, Error> {
        let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
        let mut file = BufReader::with_capacity(1 << 18, file);
        let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
        let compressed = Compression::detect(&head[..head.len().min(HEADER)]);
        let stream: Box<dyn Read> = match compressed {
            None => Box::new(file),
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(file)),
            Some(Compression::Zlib) => Box::new(ZlibDecoder::new(file)),
        };
        let most = limits.memory;
        Ok(RecordStream { path: path.to_path_buf(), stream, compressed, most, record: 0, offset: 0, bytes: Vec::new() })
    }

    /// Returns the index of the next record and its offset in the decompressed data.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.record, self.offset)
    }

    /// Returns the next record with its framing, or `None` at the end. Verifies both checksums.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        self.bytes.clear();
        if self.fill(HEADER as u64)? == 0 {
            return Ok(None);
        }
        let size = record_size(&self.bytes).map_err(|fault| self.fault(fault.to_string()))?;
        if size - OVERHEAD > self.most {
            let what =
                format!("the record has {size} bytes, but the limit is {} MiB; raise --limit-memory", self.most >> 20);
            return Err(self.fault(what));
        }
        self.fill(size - HEADER as u64)?;
        if let Err(fault) = read_record(&self.bytes, 0) {
            return Err(self.fault(fault.to_string()));
        }
        (self.record, self.offset) = (self.record + 1, self.offset + size);
        Ok(Some(&self.bytes))
    }

    /// Appends up to `count` bytes of the stream. Memory grows only with the bytes that arrive.
    fn fill(&mut self, count: u64) -> Result<usize, Error> {
        let (stream, bytes) = (&mut self.stream, &mut self.bytes);
        let read = during("reading", &self.path, || stream.take(count).read_to_end(bytes));
        read.map_err(|e| match (self.compressed, e.kind()) {
            (Some(_), io::ErrorKind::UnexpectedEof) => {
                self.fault("the compressed data is cut short here; fetch the file again".into())
            }
            (Some(compressed), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other) => {
                self.fault(format!("the {} data is damaged ({e}); fetch the file again", compressed.name()))
            }
            _ => Error::io("read", &self.path, e),
        })
    }

    /// Creates an error for the current record. Offsets count decompressed bytes.
    fn fault(&self, what: String) -> Error {
        let what = match self.compressed {
            Some(compressed) => format!("{what} ({}, unpacked)", compressed.name()),
            None => what,
        };
        Error::record(&self.path, self.position(), what)
    }
}
