//! Walks a shard record by record as a stream, with one reused buffer, and goes on past what is
//! broken where it can.
//!
//! Training reads shards through `loaders`, which trusts the index and stops at the first fault;
//! this is for the tools that make the index or look for every fault.

use crate::error::Error;
use loaders::record::{OVERHEAD, RecordFault, masked_crc32c};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes before a payload: its length and the checksum of that.
const HEADER: usize = 12;

/// A position in a shard.
pub(crate) struct Walk {
    path: PathBuf,
    file: BufReader<File>,
    len: u64,
    offset: u64,
    number: u64,
    buffer: Vec<u8>,
}

/// What stands at one position.
pub(crate) struct Found<'a> {
    /// Number of the record in its shard, from 0.
    pub number: u64,
    /// Where it starts.
    pub offset: u64,
    /// Its size with the framing.
    pub size: u64,
    /// Its bytes, or what is wrong with them.
    pub payload: Result<&'a [u8], RecordFault>,
    /// True where the length is not to be trusted: the walk cannot go on unless told where, by
    /// [`Walk::resume`].
    pub lost: bool,
}

impl Walk {
    /// Opens a shard at its first record.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::Missing {
                path: path.to_path_buf(),
                hint: "the shard is gone; copy or convert it anew".to_string(),
            },
            _ => Error::io("open", path, e),
        })?;
        let meta = file.metadata().map_err(|e| Error::io("read", path, e))?;
        if !meta.is_file() {
            return Err(Error::input(path, "is not a file; expected a shard of records"));
        }
        Ok(Walk {
            path: path.to_path_buf(),
            file: BufReader::with_capacity(1 << 20, file),
            len: meta.len(),
            offset: 0,
            number: 0,
            buffer: Vec::new(),
        })
    }

    /// Bytes of the shard.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The next record; `None` at the end of the shard, and after a lost one.
    pub(crate) fn step(&mut self) -> Result<Option<Found<'_>>, Error> {
        let (offset, number) = (self.offset, self.number);
        let have = self.len.saturating_sub(offset);
        if have == 0 {
            return Ok(None);
        }
        self.offset = self.len;
        self.number += 1;
        let lost = |fault| Ok(Some(Found { number, offset, size: have, payload: Err(fault), lost: true }));
        if have < OVERHEAD {
            return lost(RecordFault::Truncated { need: OVERHEAD, have });
        }
        let mut header = [0u8; HEADER];
        self.read(&mut header)?;
        let [l0, l1, l2, l3, l4, l5, l6, l7, c0, c1, c2, c3] = header;
        let length = u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let stored = u32::from_le_bytes([c0, c1, c2, c3]);
        let computed = masked_crc32c(&header[..8]);
        if stored != computed {
            return lost(RecordFault::LengthChecksum { stored, computed });
        }
        let size = length.saturating_add(OVERHEAD);
        if size > have {
            return lost(RecordFault::Truncated { need: size, have });
        }
        self.offset = offset + size;
        let payload = self.read_payload(length as usize)?;
        Ok(Some(Found { number, offset, size, payload, lost: false }))
    }

    /// Goes on at record `number`, which starts at `offset`.
    pub(crate) fn resume(&mut self, number: u64, offset: u64) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(offset)).map_err(|e| Error::io("read", &self.path, e))?;
        self.offset = offset;
        self.number = number;
        Ok(())
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
        self.file.read_exact(bytes).map_err(|e| Error::io("read", &self.path, e))
    }
}
