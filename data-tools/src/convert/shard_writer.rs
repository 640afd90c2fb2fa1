//! Writes framed records as a shard and its index, and their entry for `dataset.json`; then both files are made durable, those of several
//! shards at once.

use crate::error::Error;
use crate::pool;
use loaders::shard::{index_path, index_text};
use loaders::stall::during;
use loaders::{ShardManifest, safe_create, write_back};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::pieces::Pieces;

/// Threads that sync files: the file system makes what waits at the same time durable together.
const SYNCED: usize = 4;

/// The ending of a shard that is not finished.
pub(super) const UNFINISHED: &str = ".part";

/// A shard being written; it gets its name only when it is complete.
pub(crate) struct ShardWriter {
    path: PathBuf,
    part: PathBuf,
    /// Estimated bytes of the whole data set, for the message of a full disk.
    needed: u64,
    file: Pieces<File>,
    entries: Vec<(u64, u64)>,
    bytes: u64,
}

impl ShardWriter {
    /// Begins the shard `path`, which must not exist.
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
        ShardWriter { path, part, needed, file: Pieces::new(file), entries: Vec::new(), bytes: 0 }
    }

    /// Appends records with their framing, of these sizes.
    pub(crate) fn append(&mut self, records: &[u8], sizes: &[u64]) -> Result<(), Error> {
        let written = during("writing", &self.part, || self.file.write_all(records));
        written.map_err(|e| Error::write(&self.part, self.needed, e))?;
        for &size in sizes {
            self.entries.push((self.bytes, size));
            self.bytes += size;
        }
        Ok(())
    }

    /// Gives the shard its name and writes its index beside it; what is written goes to the disk from now on.
    pub(crate) fn complete(self) -> Result<CompleteShard, Error> {
        let path = self.path.clone();
        during("writing", &path, || self.named())
    }

    fn named(self) -> Result<CompleteShard, Error> {
        let ShardWriter { path, part, needed, file, entries, bytes } = self;
        let file = file.finish().map_err(|e| Error::write(&part, needed, e))?;
        write_back::start(&file);
        fs::rename(&part, &path).map_err(|e| Error::io("rename to", &path, e))?;
        let index = index_path(&path);
        let mut index_file = safe_create::create_new(&index).map_err(|e| Error::write(&index, needed, e))?;
        let written = index_file.write_all(index_text(&entries).as_bytes());
        written.map_err(|e| Error::write(&index, needed, e))?;
        write_back::start(&index_file);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = ShardManifest { file: name, count: entries.len() as u64, bytes };
        Ok(CompleteShard { manifest, files: [(path, file), (index, index_file)], needed })
    }

    /// Gives the shard its name, writes its index, and makes the content of both durable.
    pub(crate) fn finish(self) -> Result<ShardManifest, Error> {
        let shard = self.complete()?;
        sync(std::slice::from_ref(&shard))?;
        Ok(shard.manifest)
    }
}

/// A shard and its index, all written but perhaps not on the disk yet.
pub(crate) struct CompleteShard {
    pub manifest: ShardManifest,
    files: [(PathBuf, File); 2],
    needed: u64,
}

/// Makes the content of shards and their indexes durable; their names are durable once their folder is synced.
pub(crate) fn sync(shards: &[CompleteShard]) -> Result<(), Error> {
    let files: Vec<_> = shards.iter().flat_map(|shard| shard.files.iter().map(|file| (file, shard.needed))).collect();
    let synced = pool::run(files.len(), SYNCED, |i| {
        let ((path, file), needed) = files[i];
        during("syncing", path, || file.sync_all()).map_err(|e| Error::write(path, needed, e))
    });
    synced.map(drop)
}

/// An error of `loaders` while writing, with the bytes needed, as far as they are known, where the disk is full.
pub(crate) fn explain_full(error: loaders::Error, needed: impl Into<Option<u64>>) -> Error {
    match error {
        loaders::Error::Io { action, path, source } => match Error::write(&path, needed, source) {
            Error::Io { path, source, .. } => Error::Io { action, path, source },
            full => full,
        },
        other => Error::Loaders(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/full` answers every write with ENOSPC.
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
}
