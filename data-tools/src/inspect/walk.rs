//! Reads a shard record by record as a stream with one reused buffer. A [`Walk`] can continue after faults, and
//! [`scan`] stops at the first one.
//!
//! Training reads shards through `loaders`, which relies on the index and stops at the first fault. This module is for
//! tools that write the index or look for every fault.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use loaders::record::{HEADER, OVERHEAD, RecordFault, read_record, record_size};
use loaders::stall::during;
use loaders::{Compression, Example, example, regular};

use crate::error::Error;
use crate::image::false_colours::is_photo;
use crate::image::moments::Moments;
use crate::image::pixels::PixelDecoder;
use crate::progress::Counter;
use crate::source::MAX_CLASS;

/// The position of a record in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Index of the record in its shard, from 0.
    pub record: u64,
    /// Byte offset of the record's header.
    pub offset: u64,
}

impl Position {
    /// Creates an error for the record at this position in `shard`.
    pub fn error(self, shard: &Path, what: String) -> Error {
        Error::record(shard, (self.record, self.offset), what)
    }
}

pub(super) struct Walk {
    path: PathBuf,
    file: BufReader<File>,
    pub length: u64,
    next: Position,
    /// Begins with the current record and its framing.
    buffer: Vec<u8>,
}

pub(super) struct ShardRecord<'a> {
    pub at: Position,
    /// Size in bytes, including the framing.
    pub size: u64,
    /// The payload, or the record's fault.
    pub payload: Result<&'a [u8], RecordFault>,
    /// True if the length cannot be trusted. The walk then ends, unless [`Walk::resume`] is called with the position of
    /// the next record.
    pub bad_length: bool,
}

impl Walk {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = regular::open(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::missing(path, "the shard is missing; copy or convert it again"),
            _ => Error::io("open", path, e),
        })?;
        let meta = file.metadata().map_err(|e| Error::io("read", path, e))?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
        if let Some(compressed) = Compression::detect(&head[..head.len().min(HEADER)]) {
            let name = compressed.name();
            let what = format!(
                "the records are {name}-compressed; unpack the data set with `trireme data convert tfrecord DIR OUT`"
            );
            return Err(Error::input(path, what));
        }
        Ok(Walk {
            path: path.to_path_buf(),
            file,
            length: meta.len(),
            next: Position { record: 0, offset: 0 },
            buffer: vec![0; HEADER],
        })
    }

    /// Returns the next record. Returns `None` at the end of the shard or after a record whose length cannot be
    /// trusted.
    pub fn step(&mut self) -> Result<Option<ShardRecord<'_>>, Error> {
        let at = self.next;
        let have = self.length.saturating_sub(at.offset);
        if have == 0 {
            return Ok(None);
        }
        self.next = Position { record: at.record + 1, offset: self.length };
        let size = match self.read_size(have)? {
            Ok(size) => size,
            Err(fault) => return Ok(Some(ShardRecord { at, size: have, payload: Err(fault), bad_length: true })),
        };
        self.next.offset = at.offset + size;
        let payload = self.read_payload(size as usize)?;
        Ok(Some(ShardRecord { at, size, payload, bad_length: false }))
    }

    pub fn resume(&mut self, next: Position) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(next.offset)).map_err(|e| Error::io("read", &self.path, e))?;
        self.next = next;
        Ok(())
    }

    /// Reads the next record's size with framing. `have` is the number of bytes left in the shard.
    fn read_size(&mut self, have: u64) -> Result<Result<u64, RecordFault>, Error> {
        if have < OVERHEAD {
            return Ok(Err(RecordFault::Truncated { need: OVERHEAD, have }));
        }
        self.read(0..HEADER)?;
        Ok(match record_size(&self.buffer[..HEADER]) {
            Ok(size) if size > have => Err(RecordFault::Truncated { need: size, have }),
            other => other,
        })
    }

    /// Reads the rest of a record. `size` is the record's length in bytes, including the framing.
    fn read_payload(&mut self, size: usize) -> Result<Result<&[u8], RecordFault>, Error> {
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        self.read(HEADER..size)?;
        Ok(read_record(&self.buffer[..size], 0).map(|(payload, _)| payload))
    }

    /// Fills this part of the buffer with the next bytes of the file.
    fn read(&mut self, part: Range<usize>) -> Result<(), Error> {
        let bytes = &mut self.buffer[part];
        during("reading", &self.path, || self.file.read_exact(bytes)).map_err(|e| Error::io("read", &self.path, e))
    }
}

#[derive(Debug, Default)]
pub(super) struct ScannedShard {
    /// Offset and size of each record, including the framing.
    pub entries: Vec<(u64, u64)>,
    /// Size of the shard file in bytes.
    pub bytes: u64,
    /// The labels of all records as stored, without the label offset applied.
    pub labels: BTreeMap<i64, LabelRecords>,
    /// The first record with zero or multiple labels, or with targets.
    pub several: Option<Position>,
    /// Pixel sums. Empty if images were not measured.
    pub moments: Moments,
}

/// The records that share a label: their number, and the names that they give to their class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelRecords {
    /// Position of the first record with this label.
    pub first: Position,
    pub count: u64,
    /// The name in the first record that has a name.
    pub name: Option<RecordName>,
    /// The first name that differs from `name`.
    pub other: Option<RecordName>,
}

/// The name that a record assigns to its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordName {
    pub at: Position,
    /// The `image/class/text` feature.
    pub text: String,
    /// The `image/class/synset` feature, or an empty string.
    pub synset: String,
}

impl RecordName {
    /// Compares the WordNet ids if both are set, otherwise the names. An empty name matches any name.
    pub(super) fn is_same(&self, text: &str, synset: &str) -> bool {
        match self.synset.is_empty() || synset.is_empty() {
            true => self.text.is_empty() || text.is_empty() || self.text == text,
            false => self.synset == synset,
        }
    }
}

/// Scans the shard at `path`. Also decodes and measures its images if `pixels` is true. With `cure`, returns an error that
/// ends with this advice if an image has values for which no `dataset.json` can be made.
pub(super) fn scan(
    path: &Path,
    cure: Option<&str>,
    pixels: bool,
    counter: &mut Counter<'_>,
) -> Result<ScannedShard, Error> {
    let mut walk = Walk::open(path)?;
    let mut scanned = ScannedShard { bytes: walk.length, ..ScannedShard::default() };
    let mut decoder = PixelDecoder::default();
    while let Some(found) = walk.step()? {
        let at = found.at;
        let failed = |what: String| at.error(path, what);
        let payload = found.payload.map_err(|e| failed(e.to_string()))?;
        let example = example::parse(payload).map_err(|e| failed(e.to_string()))?;
        if let Some(cure) = cure.filter(|_| !is_photo(&example)) {
            let Example { channels, dtype, .. } = example;
            let bands = crate::text::plural(channels.into(), "band");
            return Err(failed(format!("the image has {bands} of {dtype}; {cure}")));
        }
        if pixels {
            decoder.measure(&example, &mut scanned.moments).map_err(failed)?;
        }
        scanned.entries.push((at.offset, found.size));
        scanned.add_record(&example, example::synset(payload).unwrap_or(""), at);
        if scanned.labels.len() as i64 > MAX_CLASS {
            return Err(failed(format!(
                "the shard has more than {MAX_CLASS} different labels; expected class numbers"
            )));
        }
        counter.tick();
    }
    Ok(scanned)
}

impl ScannedShard {
    fn add_record(&mut self, example: &Example<'_>, synset: &str, at: Position) {
        if example.labels.is_list() {
            self.several.get_or_insert(at);
            return;
        }
        let new = || LabelRecords { first: at, count: 0, name: None, other: None };
        let seen = self.labels.entry(example.label).or_insert_with(new);
        seen.count += 1;
        let named = || RecordName { at, text: example.text.to_string(), synset: synset.to_string() };
        match &seen.name {
            _ if example.text.is_empty() && synset.is_empty() => {}
            None => seen.name = Some(named()),
            Some(name) if !name.is_same(example.text, synset) => drop(seen.other.get_or_insert_with(named)),
            Some(_) => {}
        }
    }
}
