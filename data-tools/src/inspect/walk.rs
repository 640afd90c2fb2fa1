//! Reads a shard record by record as a stream, with one reused buffer, and continues behind damaged records where it can.
//!
//! Training reads shards through `loaders`, which trusts the index and stops at the first fault; this is for the tools that
//! make the index or look for every fault.

use crate::error::Error;
use loaders::record::{OVERHEAD, RecordFault, masked_crc32c};
use loaders::stall::during;
use loaders::{Compressed, regular};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes before a payload: its length and the checksum of that.
const HEADER: usize = 12;

/// Where a record starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Its number in the shard, from 0.
    pub record: u64,
    /// Its byte offset in the shard.
    pub offset: u64,
}

/// A shard that is read from record to record.
pub(super) struct Walk {
    path: PathBuf,
    file: BufReader<File>,
    length: u64,
    next: Position,
    buffer: Vec<u8>,
}

/// One record.
pub(super) struct Found<'a> {
    pub at: Position,
    /// Its size with the framing.
    pub size: u64,
    /// Its bytes, or what is wrong with them.
    pub payload: Result<&'a [u8], RecordFault>,
    /// True where the length cannot be trusted: then the walk ends here, unless [`Walk::resume`] is given the start
    /// of the next record.
    pub bad_length: bool,
}

impl Walk {
    /// Opens a shard at its first record.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = regular::open(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::Missing {
                path: path.to_path_buf(),
                hint: "the shard is gone; copy or convert it anew".to_string(),
            },
            _ => Error::io("open", path, e),
        })?;
        let meta = file.metadata().map_err(|e| Error::io("read", path, e))?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
        if let Some(compressed) = Compressed::of(&head[..head.len().min(HEADER)]) {
            let name = compressed.name();
            let what = format!(
                "its records are {name}-compressed: `trireme data convert tfrecord DIR OUT` unpacks a data set"
            );
            return Err(Error::input(path, what));
        }
        Ok(Walk {
            path: path.to_path_buf(),
            file,
            length: meta.len(),
            next: Position { record: 0, offset: 0 },
            buffer: Vec::new(),
        })
    }

    /// Bytes of the shard.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The next record; `None` at the end of the shard, and behind a record whose length cannot be trusted.
    pub fn step(&mut self) -> Result<Option<Found<'_>>, Error> {
        let at = self.next;
        let have = self.length.saturating_sub(at.offset);
        if have == 0 {
            return Ok(None);
        }
        self.next = Position { record: at.record + 1, offset: self.length };
        let size = match self.read_size(have)? {
            Ok(size) => size,
            Err(fault) => return Ok(Some(Found { at, size: have, payload: Err(fault), bad_length: true })),
        };
        self.next.offset = at.offset + size;
        let payload = self.read_payload((size - OVERHEAD) as usize)?;
        Ok(Some(Found { at, size, payload, bad_length: false }))
    }

    /// Continues at `next`.
    pub fn resume(&mut self, next: Position) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(next.offset)).map_err(|e| Error::io("read", &self.path, e))?;
        self.next = next;
        Ok(())
    }

    /// Size with framing of the next record, of which at most `have` bytes are there.
    fn read_size(&mut self, have: u64) -> Result<Result<u64, RecordFault>, Error> {
        if have < OVERHEAD {
            return Ok(Err(RecordFault::Truncated { need: OVERHEAD, have }));
        }
        let mut header = [0u8; HEADER];
        self.read(&mut header)?;
        let [l0, l1, l2, l3, l4, l5, l6, l7, c0, c1, c2, c3] = header;
        let length = u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let stored = u32::from_le_bytes([c0, c1, c2, c3]);
        let computed = masked_crc32c(&header[..8]);
        if stored != computed {
            return Ok(Err(RecordFault::LengthChecksum { stored, computed }));
        }
        let size = length.saturating_add(OVERHEAD);
        Ok(if size > have { Err(RecordFault::Truncated { need: size, have }) } else { Ok(size) })
    }

    fn read_payload(&mut self, length: usize) -> Result<Result<&[u8], RecordFault>, Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length + 4, 0);
        let read = self.read(&mut buffer);
        self.buffer = buffer;
        read?;
        let (payload, crc) = self.buffer.split_at(length);
        let stored = u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]);
        let computed = masked_crc32c(payload);
        Ok(if stored == computed { Ok(payload) } else { Err(RecordFault::PayloadChecksum { stored, computed }) })
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        during("reading", &self.path, || self.file.read_exact(bytes)).map_err(|e| Error::io("read", &self.path, e))
    }
}
