//! Writes one shard and its index: samples in, two durable files and their entry for `dataset.json`
//! out.

use crate::error::Error;
use crate::source::Sample;
use loaders::ShardManifest;
use loaders::example;
use loaders::record::RecordWriter;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// A shard being written.
pub(crate) struct ShardWriter {
    path: PathBuf,
    /// Estimated bytes of the whole data set, for the message of a full disk.
    needed: u64,
    records: RecordWriter<BufWriter<File>>,
    entries: Vec<(u64, u64)>,
    payload: Vec<u8>,
}

impl ShardWriter {
    /// Creates the file `path`, which must not exist.
    pub(crate) fn create(path: &Path, needed: u64) -> Result<Self, Error> {
        let file = File::create_new(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::StorageFull => Error::write(path, needed, e),
            _ => Error::io("create", path, e),
        })?;
        Ok(Self::on(file, path, needed))
    }

    fn on(file: File, path: &Path, needed: u64) -> Self {
        ShardWriter {
            path: path.to_path_buf(),
            needed,
            records: RecordWriter::new(BufWriter::with_capacity(1 << 20, file)),
            entries: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Appends a sample; `text` is the name of its class.
    pub(crate) fn push(&mut self, sample: &Sample, text: &str) -> Result<(), Error> {
        encode(sample, text, &mut self.payload);
        let entry = self.records.write(&self.payload).map_err(|e| Error::write(&self.path, self.needed, e))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Makes the shard and its index durable.
    pub(crate) fn finish(self) -> Result<ShardManifest, Error> {
        let (path, needed) = (self.path, self.needed);
        let failed = |e| Error::write(&path, needed, e);
        let file = self.records.finish().map_err(failed)?;
        let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
        loaders::shard::write_index(&path, &self.entries).map_err(|e| explain_full(e, needed))?;
        let name = path.file_name().unwrap_or_default();
        Ok(ShardManifest {
            file: name.to_string_lossy().into_owned(),
            count: self.entries.len() as u64,
            bytes: self.entries.last().map_or(0, |(offset, size)| offset + size),
        })
    }
}

/// The record of a sample as bytes; `out` is overwritten.
pub(crate) fn encode(sample: &Sample, text: &str, out: &mut Vec<u8>) {
    out.clear();
    example::encode(&sample.example(text), out);
}

/// An error of `loaders` while writing, with the bytes needed where the disk is full.
pub(crate) fn explain_full(error: loaders::Error, needed: u64) -> Error {
    match error {
        loaders::Error::Io { action, path, source } => match Error::write(&path, needed, source) {
            Error::Io { path, source, .. } => Error::Io { action, path, source },
            full => full,
        },
        other => Error::Loaders(other),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `/dev/full` answers every write with ENOSPC.
    #[test]
    fn a_full_disk_says_how_much_is_needed() {
        let path = Path::new("/dev/full");
        let file = File::options().write(true).open(path).unwrap();
        let mut writer = ShardWriter::on(file, path, 5 << 20);
        let mut sample = Sample::new();
        sample.encoded = vec![7; 3000];
        let error = loop {
            if let Err(error) = writer.push(&sample, "seven") {
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
