//! A file for the `parquet` crate that several threads read at once: each read has its own position.

use ::parquet::errors::Result;
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file of known length.
#[derive(Debug, Clone)]
pub(crate) struct Positioned {
    file: Arc<File>,
    length: u64,
}

impl Positioned {
    pub(crate) fn new(file: File, length: u64) -> Self {
        Positioned { file: Arc::new(file), length }
    }
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.length
    }
}

/// A stream from some position on.
pub(crate) struct From {
    file: Arc<File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(out, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(From { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.saturating_add(length as u64) > self.length {
            let what = format!("{length} bytes at byte {start} of a file of {} bytes", self.length);
            return Err(::parquet::errors::ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
