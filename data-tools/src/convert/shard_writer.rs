//! Writes records to a shard, with its index and its entry for `dataset.json`, and syncs the files of multiple shards
//! to disk together.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use loaders::example::{self, LabelList};
use loaders::shard::{index_path, index_text};
use loaders::stall::during;
use loaders::{Example, LabelKind, ShardManifest, safe_create, write_back};

use crate::error::Error;
use crate::source::{Sample, Source};
use crate::{pool, text};

/// Number of threads that sync files. File systems can commit several requests together if they arrive at the same
/// time.
const SYNC_THREADS: usize = 4;

/// File name ending of an unfinished shard.
pub(super) const UNFINISHED: &str = ".part";

/// A shard being written. It gets its final name when it is complete.
pub(crate) struct ShardWriter {
    path: PathBuf,
    part: PathBuf,
    /// Estimated size of the whole data set in bytes, for the message if the disk is full.
    needed: u64,
    file: PieceWriter<File>,
    entries: Vec<(u64, u64)>,
    bytes: u64,
}

impl ShardWriter {
    /// Creates the shard `path`, which must not exist.
    pub(crate) fn create(path: &Path, needed: u64) -> Result<Self, Error> {
        let mut part = path.as_os_str().to_owned();
        part.push(UNFINISHED);
        let part = PathBuf::from(part);
        let file = during("creating", &part, || safe_create::create_new(&part)).map_err(|e| match e.kind() {
            std::io::ErrorKind::StorageFull => Error::write(&part, needed, e),
            _ => Error::io("create", &part, e),
        })?;
        Ok(Self::on(file, part, path, needed))
    }

    fn on(file: File, part: PathBuf, path: &Path, needed: u64) -> Self {
        let path = path.to_path_buf();
        ShardWriter { path, part, needed, file: PieceWriter::new(file), entries: Vec::new(), bytes: 0 }
    }

    /// Appends framed records. `sizes` are their sizes in bytes.
    pub(crate) fn append(&mut self, records: &[u8], sizes: &[u64]) -> Result<(), Error> {
        let written = during("writing", &self.part, || self.file.write_all(records));
        written.map_err(|e| Error::write(&self.part, self.needed, e))?;
        for &size in sizes {
            self.entries.push((self.bytes, size));
            self.bytes += size;
        }
        Ok(())
    }

    /// Renames the shard to its final name, writes its index, and starts writing both to disk without waiting.
    pub(crate) fn complete(self) -> Result<CompleteShard, Error> {
        let path = self.path.clone();
        during("writing", &path, || self.publish())
    }

    fn publish(self) -> Result<CompleteShard, Error> {
        let ShardWriter { path, part, needed, file, entries, bytes } = self;
        let file = file.finish().map_err(|e| Error::write(&part, needed, e))?;
        write_back::start(&file);
        fs::rename(&part, &path).map_err(|e| Error::io("rename the finished file to this name", &path, e))?;
        let index = index_path(&path);
        let mut index_file = safe_create::create_new(&index).map_err(|e| Error::write(&index, needed, e))?;
        let written = index_file.write_all(index_text(&entries).as_bytes());
        written.map_err(|e| Error::write(&index, needed, e))?;
        write_back::start(&index_file);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = ShardManifest { file: name, count: entries.len() as u64, bytes };
        Ok(CompleteShard { manifest, files: [(path, file), (index, index_file)], needed })
    }

    /// Completes the shard and waits until shard and index are on disk.
    pub(crate) fn finish(self) -> Result<ShardManifest, Error> {
        let shard = self.complete()?;
        sync(std::slice::from_ref(&shard))?;
        Ok(shard.manifest)
    }
}

/// A completely written shard and index that may not be synced to disk yet.
pub(crate) struct CompleteShard {
    pub manifest: ShardManifest,
    files: [(PathBuf, File); 2],
    needed: u64,
}

/// Syncs the content of shards and indexes to disk. Their names are only durable after their folder is synced too.
pub(crate) fn sync(shards: &[CompleteShard]) -> Result<(), Error> {
    let files: Vec<_> = shards.iter().flat_map(|shard| shard.files.iter().map(|file| (file, shard.needed))).collect();
    let synced = pool::run(files.len(), SYNC_THREADS, |i| {
        let ((path, file), needed) = files[i];
        during("syncing", path, || file.sync_all()).map_err(|e| Error::write(path, needed, e))
    });
    synced.map(drop)
}

/// Converts a write error of `loaders`. If the disk is full, the message includes the number of bytes needed, if known.
pub(crate) fn explain_full(error: loaders::Error, needed: impl Into<Option<u64>>) -> Error {
    match error {
        loaders::Error::Io { action, path, source } => match Error::write(&path, needed, source) {
            Error::Io { path, source, .. } => Error::Io { action, path, source },
            full => full,
        },
        other => Error::Loaders(other),
    }
}

// Writes a file in pieces of the size of a huge page, each at a multiple of that size. Some file systems (ext4 since
// Linux 6.16, XFS) cache data that is written at once in one huge page. A loader can then map it with one page table
// entry instead of 512.

/// Piece size in bytes: a huge page on x86-64.
pub(super) const PIECE: usize = 2 << 20;

/// A writer that collects bytes and passes them on in whole pieces.
pub(super) struct PieceWriter<W: Write> {
    to: W,
    held: Vec<u8>,
}

impl<W: Write> PieceWriter<W> {
    /// Creates a writer. The position of `to` must be at the start of the file.
    pub(super) fn new(to: W) -> Self {
        Self { to, held: Vec::with_capacity(PIECE) }
    }

    /// Writes the last, possibly shorter piece and returns the inner writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.to)
    }
}

impl<W: Write> Write for PieceWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == PIECE {
            self.to.write_all(&self.held)?;
            self.held.clear();
        }
        Ok(taken)
    }

    /// Writes all bytes that are held back. Later pieces begin at the current position, which may not be a multiple of
    /// [`PIECE`].
    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.held)?;
        self.held.clear();
        self.to.flush()
    }
}

/// The default limit is this factor times the source's bytes, plus [`LIMIT_EXTRA`].
const LIMIT_FACTOR: u64 = 64;
const LIMIT_EXTRA: u64 = 1 << 30;

/// The limit on the total size of the shards, shared by all threads.
pub(super) struct OutputLimit {
    /// The value passed with `--max-output`.
    given: Option<u64>,
    /// The source's total bytes if known, otherwise the bytes read up to now.
    source: AtomicU64,
    /// True if `source` is the total.
    is_known: bool,
    /// Shard bytes that earlier attempts wrote.
    before: u64,
    written: AtomicU64,
}

impl OutputLimit {
    /// Creates a limit. `source` is the source's size in bytes if known, and `before` counts the shard bytes already in the output.
    pub fn new(given: Option<u64>, source: Option<u64>, before: u64) -> Self {
        let (is_known, source) = (source.is_some(), AtomicU64::new(source.unwrap_or(0)));
        OutputLimit { given, source, is_known, before, written: AtomicU64::new(0) }
    }

    pub fn read(&self, bytes: usize) {
        if !self.is_known {
            self.source.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts bytes that will be written below `dir`. Returns an error if the total exceeds the limit.
    pub fn write(&self, dir: &Path, bytes: usize) -> Result<(), Error> {
        let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        self.check(dir, written, "take")
    }

    /// Rejects a conversion before it writes anything if the estimated output is far above the limit. `needed` is the
    /// estimate for all shards, including the shards that an earlier conversion has finished. Returns an error if a
    /// quarter of the rest exceeds the limit and the source's size is known or `--max-output` is set.
    pub fn check_estimate(&self, dir: &Path, needed: u64) -> Result<(), Error> {
        let is_known = self.is_known || self.given.is_some();
        if is_known { self.check(dir, needed.saturating_sub(self.before) / 4, "would take") } else { Ok(()) }
    }

    fn check(&self, dir: &Path, written: u64, take: &str) -> Result<(), Error> {
        let source = self.source.load(Ordering::Relaxed);
        let most = match self.given {
            Some(most) => most.saturating_sub(self.before),
            None => source.saturating_mul(LIMIT_FACTOR).saturating_add(LIMIT_EXTRA),
        };
        if written <= most {
            return Ok(());
        }
        let why = match self.given {
            Some(most) => format!("the limit of {} (--max-output)", text::bytes(most)),
            None => format!("{LIMIT_FACTOR} times the source's {} and 1 GiB", text::bytes(source)),
        };
        Err(Error::input(dir, format!("the shards {take} more than {why}; if this is intended, raise --max-output")))
    }
}

/// The key of the WordNet id of a class, as in TensorFlow's ImageNet scripts.
const SYNSET: &str = "image/class/synset";

pub(super) fn encode(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    match source.label_kind() {
        LabelKind::OneClass => {}
        LabelKind::Classes => return encode_multi_label(source, sample, out),
        LabelKind::Numbers => return example::encode(&sample.example_with_targets(), out),
    }
    let example = sample.example(source.text(sample.label), source.label_offset());
    let synset = source.synset(sample.label).map(|synset| (SYNSET, synset));
    example::encode_with(&example, synset.as_slice(), out);
}

/// Appends the record of an image with any number of classes. The record has all labels in one list and the class names
/// joined with "; ".
fn encode_multi_label(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    let offset = source.label_offset();
    let stored: Vec<i64> = sample.labels.iter().map(|label| i64::from(*label) + offset).collect();
    let names: Vec<&str> = sample.labels.iter().map(|label| source.text(*label)).collect();
    let mut list = LabelList::default();
    list.set(&stored);
    let text = names.join("; ");
    let example = sample.example(&text, offset);
    example::encode(&Example { label: list.first(), labels: list.labels(), ..example }, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writing to `/dev/full` fails with ENOSPC.
    #[test]
    fn a_full_disk_says_how_much_is_needed() {
        let path = Path::new("/dev/full");
        let file = File::options().write(true).open(path).unwrap();
        let mut writer = ShardWriter::on(file, path.to_path_buf(), path, 5 << 20);
        let error = loop {
            if let Err(error) = writer.append(&[7; 3000], &[3000]) {
                break error;
            }
        };
        let message = error.to_string();
        assert!(message.contains("no space left"), "{message}");
        assert!(message.contains("5242880 bytes (5.0 MiB)"), "{message}");

        let full = loaders::Error::Io {
            action: "write",
            path: path.to_path_buf(),
            source: std::io::Error::from(std::io::ErrorKind::StorageFull),
        };
        assert!(matches!(explain_full(full, 1), Error::DiskFull { .. }));
    }

    #[test]
    fn the_estimate_counts_only_shards_that_are_not_finished() {
        let limit = OutputLimit::new(Some(11), None, 9);
        assert!(limit.check_estimate(Path::new("out"), 10).is_ok());
        let error = limit.check_estimate(Path::new("out"), 30).unwrap_err().to_string();
        assert!(error.contains("would take"), "{error}");
    }

    /// Records the length of each write.
    #[derive(Default)]
    struct Noted {
        bytes: Vec<u8>,
        writes: Vec<usize>,
    }

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            self.writes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_writes_but_the_last_are_whole_pieces() {
        let wanted: Vec<u8> = (0..5 * PIECE / 2 + 17).map(|i| (i % 251) as u8).collect();
        for part in [1 << 10, 3000, PIECE - 1, PIECE, 2 * PIECE + 5] {
            let mut pieces = PieceWriter::new(Noted::default());
            wanted.chunks(part).for_each(|part| pieces.write_all(part).unwrap());
            let Noted { bytes, writes } = pieces.finish().unwrap();
            assert!(bytes == wanted, "parts of {part}");
            assert_eq!(writes, [PIECE, PIECE, PIECE / 2 + 17], "parts of {part}");
        }
        assert!(PieceWriter::new(Noted::default()).finish().unwrap().bytes.is_empty());
    }

    #[test]
    fn output_grows_with_the_source() {
        let dir = Path::new("out");
        let known = OutputLimit::new(None, Some(1000), 0);
        known.read(1 << 40);
        assert!(known.write(dir, (1 << 30) + 64_000).is_ok());
        let error = known.write(dir, 1).unwrap_err().to_string();
        assert!(["64 times", "1000 bytes", "1 GiB", "--max-output"].iter().all(|part| error.contains(part)), "{error}");
        assert!(known.check_estimate(dir, 4 << 30).is_ok() && known.check_estimate(dir, 5 << 30).is_err());
        let read = OutputLimit::new(None, None, 1 << 50);
        assert!(read.check_estimate(dir, u64::MAX).is_ok());
        read.read(10 << 30);
        assert!(read.write(dir, 600 << 30).is_ok() && read.write(dir, 50 << 30).is_err());
        let given = OutputLimit::new(Some(100), None, 90);
        assert!(given.write(dir, 10).is_ok());
        let error = given.write(dir, 1).unwrap_err().to_string();
        assert!(error.contains(" 100 bytes") && error.contains("--max-output"), "{error}");
    }
}
