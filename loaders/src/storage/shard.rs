//! One TFRecord file, mapped or read, with its index. The modules `dataset` and `example` interpret its records.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, folder_of};
use crate::fault::{Fault, RecordFault};
use crate::file::regular;
use crate::format::index::parse_index;
use crate::format::record::{HEADER, read_record, record_size};
use crate::stall::during;
use crate::storage::filesystem::PageCache;
use crate::storage::mapping::Mapping;

pub use crate::format::index::{index_matches, index_path, index_text, write_index};

/// Number of bytes of a mapped shard that one step of the read-ahead requests.
const AHEAD: usize = 8 << 20;

/// Number of record headers that are compared with an index that is older than its shard.
const COMPARED: u64 = 64;

#[derive(Debug)]
enum Data {
    Mapped(Mapping),
    Loaded(Vec<u8>),
    /// Not in memory. Records are read individually, see [`Shard::read_at`].
    Open(File),
}

/// The way in which the records of a shard are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The file is mapped into memory.
    Map,
    /// The whole file is read into memory first.
    Load,
    /// Each record is read separately.
    Records,
}

/// An open shard and the offsets of its records.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    data: Data,
    /// Offset of each record, followed by the file's length. So there is one more entry than there are records.
    offsets: Arc<[u64]>,
}

impl Shard {
    /// Opens the file and reads its index. The index must cover the whole file without gaps and agree with the headers
    /// of a few records.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let data = match access {
            Access::Map => Data::Mapped(Mapping::open("shard", path)?),
            Access::Load => Data::Loaded(whole(path)?),
            Access::Records => Data::Open(open(path)?),
        };
        let length = match &data {
            Data::Mapped(mapping) => mapping.len() as u64,
            Data::Loaded(bytes) => bytes.len() as u64,
            Data::Open(file) => file_length(file, path)?,
        };
        let index = index_path(path);
        let text = regular::read_to_string(&index).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NoIndex { index: index.clone(), dir: folder_of(path).to_owned() },
            _ => Error::Io { action: "read", path: index.clone(), source },
        })?;
        let offsets = parse_index(&text, length).map_err(|problem| wrong_index(path, problem))?.into();
        let shard = Self { path: path.to_owned(), data, offsets };
        shard.check_headers()?;
        Ok(shard)
    }

    /// Opens the file again to read single records, without reading its index again.
    pub(crate) fn reopen(&self) -> Result<Self, Error> {
        let (path, offsets) = (self.path.clone(), Arc::clone(&self.offsets));
        Ok(Self { data: Data::Open(open(&path)?), path, offsets })
    }

    /// Compares the index's sizes with the headers of the first and last records, or of up to 64 records if the index
    /// is older than the shard. (Times alone prove nothing, because copying changes them.)
    ///
    /// If a single header fails its checksum, that record is damaged, and its reader reports or skips it. If more than
    /// half of the headers fail, the index belongs to another shard.
    fn check_headers(&self) -> Result<(), Error> {
        let compared = if is_older(&index_path(&self.path), &self.path) { COMPARED } else { 2 }.min(self.len());
        let (mut header, mut damaged) = (Vec::with_capacity(HEADER), 0);
        for i in 0..compared {
            let number = (u128::from(i) * u128::from(self.len() - 1) / u128::from((compared - 1).max(1))) as usize;
            let (offset, end) = (self.offsets[number], self.offsets[number + 1]);
            self.read_at(&mut header, HEADER, offset)?;
            let size = end - offset;
            match record_size(&header) {
                Ok(actual) if actual == size => {}
                Ok(actual) => {
                    let problem = format!(
                        "record {number} at byte {offset}: the index says {size} bytes, but the record has {actual}"
                    );
                    return Err(wrong_index(&self.path, problem));
                }
                Err(_) => damaged += 1,
            }
        }
        if damaged > 1 && damaged * 2 > compared {
            let problem = format!("{damaged} of {compared} checked records do not start where the index says");
            return Err(wrong_index(&self.path, problem));
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of records according to the index.
    pub fn len(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the byte offset of record `number`. If `number` is the number of records, returns the file's length.
    /// Returns `None` for larger numbers.
    pub fn offset(&self, number: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the payload of record `number` (from 0). Verifies both checksums and compares the index with the length
    /// in the record. If `number` is not below `len`, the error is the same as for a truncated record.
    ///
    /// The record is copied into `copy`, which is reused between calls, unless the shard was loaded into private
    /// memory. So the caller gets exactly the bytes that were verified, even if other processes write to the file.
    pub fn record<'a>(&'a self, number: u64, copy: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        let end = *self.offsets.last().unwrap_or(&0);
        let (from, to) = (self.offset(number).unwrap_or(end), self.offset(number + 1).unwrap_or(end));
        let bytes = match &self.data {
            Data::Loaded(bytes) => usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or(&[]),
            _ => {
                during("reading", &self.path, || self.read_at(copy, (to - from) as usize, from))?;
                copy
            }
        };
        self.payload(number, bytes)
    }

    /// Returns the payload of record `number` from `bytes`, which start with the record including its framing. Makes
    /// the same checks as `record`.
    pub(crate) fn payload<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
        let failed = |fault: RecordFault| self.fault(number, fault.into());
        let actual = record_size(bytes).map_err(failed)?;
        let (from, to) = (self.offset(number).unwrap_or(0), self.offset(number + 1));
        match to.map_or(0, |to| to - from) {
            indexed if indexed == actual => Ok(read_record(bytes, 0).map_err(failed)?.0),
            indexed => Err(self.fault(number, Fault::Size { indexed, actual })),
        }
    }

    /// Replaces the contents of `buffer` by the `length` bytes at `offset` of the file.
    pub(crate) fn read_at(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> Result<(), Error> {
        let ends = || short(&self.path, offset, length, 0);
        match &self.data {
            Data::Mapped(mapping) => {
                buffer.clear();
                if mapping.copy(offset, length, buffer) { Ok(()) } else { Err(ends()) }
            }
            Data::Loaded(bytes) => {
                let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..length)).ok_or_else(ends)?;
                buffer.clear();
                buffer.extend_from_slice(from);
                Ok(())
            }
            Data::Open(file) => {
                buffer.resize(length, 0);
                exact_at(file, &self.path, buffer, offset)
            }
        }
    }

    /// Tells the kernel that record `number` will be read soon. Does nothing if the shard is not mapped.
    pub(crate) fn will_need(&self, number: u64) {
        if let (Data::Mapped(mapping), Some(from), Some(to)) =
            (&self.data, self.offset(number), self.offset(number + 1))
        {
            mapping.will_need(from, to - from);
        }
    }

    /// Reads a mapped shard into memory from start to end and always requests the next 8 MiB ahead. Parts that the page
    /// cache already holds are skipped. Returns early if `stop` returns true.
    pub(crate) fn read_ahead(&self, stop: impl Fn() -> bool) {
        let Data::Mapped(mapping) = &self.data else { return };
        let cache = PageCache::open(&self.path);
        let (ahead, length, mut requested) = (AHEAD as u64, mapping.len() as u64, 0);
        for start in (0..length).step_by(AHEAD) {
            if stop() {
                return;
            }
            if cache.as_ref().is_some_and(|cache| cache.holds(start..length.min(start + ahead))) {
                continue;
            }
            let (from, to) = (start.max(requested), start + 2 * ahead);
            mapping.will_need(from, to - from);
            requested = to;
            mapping.populate(start, ahead);
        }
    }

    /// Creates an error about record `number` of this shard.
    pub fn fault(&self, number: u64, fault: Fault) -> Error {
        Error::Record {
            path: self.path.clone(),
            record: number,
            offset: self.offset(number).or(self.offsets.last().copied()).unwrap_or(0),
            fault,
        }
    }
}

/// Returns true if the index was last written before the shard. Returns false if one of the times is unknown.
fn is_older(index: &Path, shard: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    time(index).zip(time(shard)).is_some_and(|(index, shard)| index < shard)
}

/// Creates the error for an index that does not match its shard.
fn wrong_index(shard: &Path, mut problem: String) -> Error {
    let index = index_path(shard);
    if is_older(&index, shard) {
        problem.push_str("; it is older than the shard");
    }
    Error::Index { index, dir: folder_of(shard).to_owned(), problem }
}

fn open(path: &Path) -> Result<File, Error> {
    regular::open(path).map_err(Error::io("open", path))
}

fn file_length(file: &File, path: &Path) -> Result<u64, Error> {
    Ok(file.metadata().map_err(Error::io("read the size of", path))?.len())
}

fn whole(path: &Path) -> Result<Vec<u8>, Error> {
    let file = open(path)?;
    let length = file_length(&file, path)? as usize;
    let mut bytes = Vec::new();
    let no_memory = |_| Error::io("allocate memory for", path)(io::ErrorKind::OutOfMemory.into());
    bytes.try_reserve_exact(length).map_err(no_memory)?;
    // Read into the reserved memory without clearing it first. The reads are as long as the system allows.
    (&file).take(length as u64).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    match bytes.len() {
        got if got < length => Err(short(path, 0, length, got)),
        _ => Ok(bytes),
    }
}

/// Fills `buffer` with the bytes at `offset`.
fn exact_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(short(path, offset, buffer.len(), done)),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path)(e)),
        }
    }
    Ok(())
}

/// Creates the error for a file that is shorter than expected.
fn short(path: &Path, offset: u64, expected: usize, got: usize) -> Error {
    Error::ShortRead { path: path.to_owned(), offset, expected: expected as u64, got: got as u64 }
}
