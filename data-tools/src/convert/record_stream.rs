//! The records of a TFRecord file as a stream, unpacked on the fly if the file is compressed by GZIP or ZLIB.

use crate::error::Error;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use loaders::record::{OVERHEAD, read_record};
use loaders::stall::during;
use loaders::{Compressed, Limits, regular};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes before a payload.
const HEADER: usize = 12;

/// A file that is read record by record.
pub(super) struct RecordStream {
    path: PathBuf,
    stream: Box<dyn Read>,
    compressed: Option<Compressed>,
    /// The most bytes of a record.
    most: u64,
    record: u64,
    offset: u64,
    /// The record at work, framing included.
    bytes: Vec<u8>,
}

impl RecordStream {
    /// Opens a file of records, plain or compressed.
    pub(super) fn open(path: &Path, limits: &Limits) -> Result<Self, Error> {
        let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
        let mut file = BufReader::with_capacity(1 << 18, file);
        let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
        let compressed = Compressed::of(&head[..head.len().min(HEADER)]);
        let stream: Box<dyn Read> = match compressed {
            None => Box::new(file),
            Some(Compressed::Gzip) => Box::new(MultiGzDecoder::new(file)),
            Some(Compressed::Zlib) => Box::new(ZlibDecoder::new(file)),
        };
        let most = limits.memory;
        Ok(RecordStream { path: path.to_path_buf(), stream, compressed, most, record: 0, offset: 0, bytes: Vec::new() })
    }

    /// Returns the index of the next record and its offset in the decompressed data.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.record, self.offset)
    }

    /// The next record with its framing, both checksums verified; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        self.bytes.clear();
        if self.fill(HEADER as u64)? == 0 {
            return Ok(None);
        }
        // of the header alone: its checksum fails, or the rest is missing
        let size = match read_record(&self.bytes, 0) {
            Err(loaders::record::RecordFault::Truncated { need, .. }) if self.bytes.len() == HEADER => need,
            Err(fault) => return Err(self.fault(fault.to_string())),
            Ok(_) => OVERHEAD,
        };
        if size - OVERHEAD > self.most {
            let what =
                format!("the record takes {size} bytes, {} MiB are allowed; raise --limit-memory", self.most >> 20);
            return Err(self.fault(what));
        }
        self.fill(size - HEADER as u64)?;
        if let Err(fault) = read_record(&self.bytes, 0) {
            return Err(self.fault(fault.to_string()));
        }
        (self.record, self.offset) = (self.record + 1, self.offset + size);
        Ok(Some(&self.bytes))
    }

    /// Appends up to `count` bytes of the stream; memory grows with what arrives.
    fn fill(&mut self, count: u64) -> Result<usize, Error> {
        let (stream, bytes) = (&mut self.stream, &mut self.bytes);
        let read = during("reading", &self.path, || stream.take(count).read_to_end(bytes));
        read.map_err(|e| match (self.compressed, e.kind()) {
            (Some(_), io::ErrorKind::UnexpectedEof) => {
                self.fault("the compressed data ends here: cut short; fetch the file again".into())
            }
            (Some(compressed), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other) => {
                self.fault(format!("the {} data is damaged ({e}); fetch the file again", compressed.name()))
            }
            _ => Error::io("read", &self.path, e),
        })
    }

    /// A fault of the record at work; the offset counts unpacked bytes.
    fn fault(&self, what: String) -> Error {
        let what = match self.compressed {
            Some(compressed) => format!("{what} ({}, unpacked)", compressed.name()),
            None => what,
        };
        Error::Record { shard: self.path.clone(), record: self.record, offset: self.offset, what }
    }
}
