//! One TFRecord file, mapped or read, with its index: the file `<shard>.idx` of lines `offset size` (the
//! layout that DALI's `tfrecord2idx` writes; size counts the framing). What the records mean is
//! `dataset`'s and `example`'s matter.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Fault};
use crate::file::regular;
use crate::file::replace::{replace, suffixed};
use crate::format::record::{HEADER, OVERHEAD, read_record, record_size};
use crate::storage::mapping::Mapping;

/// Distance of two reads ahead within a file.
pub(crate) const STRETCH: usize = 8 << 20;

/// A shard's bytes.
#[derive(Debug)]
enum Data {
    Mapped(Mapping),
    Loaded(Vec<u8>),
    /// Records are read one by one, see [`Shard::read_at`].
    Open(File),
}

/// Records whose headers are compared with an index that is older than its shard.
const LOOKS: u64 = 64;

/// Why an index and its shard do not belong together.
enum Stale {
    Index(String),
    Other(Error),
}

/// How a shard gives access to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through a mapping.
    Map,
    /// Out of memory, into which the whole file is read.
    Load,
    /// By reads of single records.
    Records,
}

/// An open shard and where its records lie.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    data: Data,
    /// Start of each record, then the file's length: one more than there are records.
    offsets: Vec<u64>,
}

impl Shard {
    /// Maps the file and reads its index, which must cover the file from end to end without gaps and agree with a few of the
    /// records' headers.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_for(path, Access::Map)
    }

    pub(crate) fn open_for(path: &Path, access: Access) -> Result<Self, Error> {
        let data = match access {
            Access::Map => Data::Mapped(Mapping::open(path)?),
            Access::Load => Data::Loaded(load(path)?),
            Access::Records => Data::Open(open(path)?),
        };
        let length = match &data {
            Data::Mapped(mapping) => mapping.bytes().len() as u64,
            Data::Loaded(bytes) => bytes.len() as u64,
            Data::Open(file) => file.metadata().map_err(failed("read the size of", path))?.len(),
        };
        let index = index_path(path);
        let text = regular::read_to_string(&index).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NoIndex { index: index.clone(), dir: folder(path) },
            _ => Error::Io { action: "read", path: index.clone(), source },
        })?;
        let problem = |problem| Error::Index { index: index.clone(), dir: folder(path), problem };
        let offsets = parse_index(&text, length).map_err(|text| match older(&index, path) {
            true => problem(format!("{text}; it is older than the shard")),
            false => problem(text),
        })?;
        let shard = Self { path: path.to_owned(), data, offsets };
        shard.check_headers().map_err(|stale| match stale {
            Stale::Other(error) => error,
            Stale::Index(text) if older(&index, path) => problem(format!("{text}; it is older than the shard")),
            Stale::Index(text) => problem(text),
        })?;
        Ok(shard)
    }

    /// Whether the index's sizes are those in the records' own headers, by a look at a few: the first and the last, more if
    /// the index is older than the shard. (Times alone prove nothing: copying changes them.) A single header that fails its
    /// checksum is a damaged record, for its reader to report or to skip; several are an index of another shard.
    fn check_headers(&self) -> Result<(), Stale> {
        let looks = if older(&index_path(&self.path), &self.path) { LOOKS } else { 2 }.min(self.len());
        let (mut buffer, mut damaged) = ([0; HEADER], 0);
        for look in 0..looks {
            let number = u128::from(look) * u128::from(self.len() - 1) / u128::from((looks - 1).max(1));
            let (offset, end) = (self.offsets[number as usize], self.offsets[number as usize + 1]);
            self.read_at(&mut buffer, offset).map_err(Stale::Other)?;
            let size = end - offset;
            match record_size(&buffer) {
                Ok(actual) if actual == size => {}
                Ok(actual) => {
                    return Err(Stale::Index(format!(
                        "record {number} at byte {offset}: the index says {size} bytes, the record is {actual}"
                    )));
                }
                Err(_) => damaged += 1,
            }
        }
        if damaged > 1 && damaged * 2 > looks {
            return Err(Stale::Index(format!(
                "{damaged} of {looks} records looked at do not start where the index says"
            )));
        }
        Ok(())
    }

    /// The shard's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of records, by the index.
    pub fn len(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole file; nothing of a shard that is read record by record.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Mapped(mapping) => mapping.bytes(),
            Data::Loaded(bytes) => bytes,
            Data::Open(_) => &[],
        }
    }

    /// Where record `number` starts, in bytes; the file's length for the number after the last.
    /// `None` beyond that.
    pub fn offset(&self, number: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(number).ok()?).copied()
    }

    /// The payload of record `number` (from 0); both checksums are verified, and the index against
    /// the record's own length. A number not below `len` is a truncated record.
    pub fn record(&self, number: u64) -> Result<&[u8], Error> {
        let offset = self.offset(number).unwrap_or_else(|| self.bytes().len() as u64);
        self.payload(number, usize::try_from(offset).ok().and_then(|at| self.bytes().get(at..)).unwrap_or(&[]))
    }

    /// The payload of record `number`, whose bytes, framing included, stand at the start of `bytes`; checked as by `record`.
    pub(crate) fn payload<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
        let (payload, actual) = read_record(bytes, 0).map_err(|e| self.fault(number, e.into()))?;
        let offset = self.offset(number).unwrap_or(0);
        match self.offset(number + 1) {
            Some(end) if end - offset == actual => Ok(payload),
            end => Err(self.fault(number, Fault::Size { indexed: end.unwrap_or(offset) - offset, actual })),
        }
    }

    /// Reads `buffer.len()` bytes at `offset` of the file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        match &self.data {
            Data::Open(file) => read_exact_at(file, &self.path, buffer, offset),
            _ => {
                let from = self.bytes().get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
                from.map(|from| buffer.copy_from_slice(from)).ok_or_else(|| short(&self.path, offset, buffer.len(), 0))
            }
        }
    }

    /// Tells the kernel that records `number` will be wanted soon; only mapped shards have use for it.
    pub(crate) fn will_need(&self, number: u64) {
        if let (Data::Mapped(mapping), Some(from), Some(to)) =
            (&self.data, self.offset(number), self.offset(number + 1))
        {
            mapping.will_need(from, to - from);
        }
    }

    /// Brings a mapped shard into memory from start to end, always a stretch ahead; `stop` ends it early.
    pub(crate) fn read_ahead(&self, stop: impl Fn() -> bool) {
        let Data::Mapped(mapping) = &self.data else { return };
        let stretch = STRETCH as u64;
        mapping.will_need(0, stretch);
        for start in (0..mapping.bytes().len() as u64).step_by(STRETCH) {
            if stop() {
                return;
            }
            mapping.will_need(start + stretch, stretch);
            mapping.populate(start, stretch);
        }
    }

    /// An error about record `number` of this shard.
    pub fn fault(&self, number: u64, fault: Fault) -> Error {
        Error::Record {
            path: self.path.clone(),
            record: number,
            offset: self.offset(number).unwrap_or_else(|| self.bytes().len() as u64),
            fault,
        }
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

fn open(path: &Path) -> Result<File, Error> {
    regular::open(path).map_err(failed("open", path))
}

/// The whole file.
fn load(path: &Path) -> Result<Vec<u8>, Error> {
    let file = open(path)?;
    let length = file.metadata().map_err(failed("read the size of", path))?.len() as usize;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| failed("find memory for", path)(io::ErrorKind::OutOfMemory.into()))?;
    // into the reserved memory as it is, in reads as long as the system makes them
    (&file).take(length as u64).read_to_end(&mut bytes).map_err(failed("read", path))?;
    match bytes.len() {
        got if got < length => Err(short(path, 0, length, got)),
        _ => Ok(bytes),
    }
}

fn read_exact_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(short(path, offset, buffer.len(), done)),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("read", path)(e)),
        }
    }
    Ok(())
}

fn short(path: &Path, offset: u64, expected: usize, got: usize) -> Error {
    Error::ShortRead { path: path.to_owned(), offset, expected: expected as u64, got: got as u64 }
}

/// Whether the index was written before the shard's last change; no if either has no time.
fn older(index: &Path, shard: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    time(index).zip(time(shard)).is_some_and(|(index, shard)| index < shard)
}

/// Where the index of a shard lies: `.idx` appended to the shard's file name.
pub fn index_path(shard: &Path) -> PathBuf {
    suffixed(shard, ".idx")
}

/// Writes the index of the shard at `shard`, whole or not at all. `entries` are (offset, size with
/// framing), as [`RecordWriter::write`](crate::format::record::RecordWriter::write) returns them.
pub fn write_index(shard: &Path, entries: &[(u64, u64)]) -> Result<(), Error> {
    let mut text = String::with_capacity(entries.len() * 16);
    for (offset, size) in entries {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{offset} {size}");
    }
    replace(&index_path(shard), text.as_bytes())
}

/// Finds all records of a shard by walking it, every checksum verified: (offset, size with framing)
/// of each, ready for [`write_index`].
pub fn scan_index(shard: &Path) -> Result<Vec<(u64, u64)>, Error> {
    let mapping = Mapping::open(shard)?;
    let bytes = mapping.bytes();
    let mut entries = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() as u64 {
        let (_, next) = read_record(bytes, offset).map_err(|fault| Error::Record {
            path: shard.to_owned(),
            record: entries.len() as u64,
            offset,
            fault: fault.into(),
        })?;
        entries.push((offset, next - offset));
        offset = next;
    }
    Ok(entries)
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).to_owned()
}

/// The starts of all records and the file's length, or what is wrong.
fn parse_index(text: &str, file: u64) -> Result<Vec<u64>, String> {
    let mut offsets = Vec::new();
    let mut end = 0u64;
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(offset)), Some(Ok(size)), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("line {number}: expected `offset size`, got \"{}\"", line.escape_debug()));
        };
        if offset != end {
            return Err(format!("line {number}: expected offset {end}, got {offset}"));
        }
        end = offset.checked_add(size).filter(|&end| size >= OVERHEAD && end <= file).ok_or_else(|| {
            format!(
                "line {number}: a record of {size} bytes at {offset} does not fit \
                     the shard's {file} bytes"
            )
        })?;
        offsets.push(offset);
    }
    if end != file {
        return Err(format!("it covers {end} bytes, but the shard has {file} bytes"));
    }
    offsets.push(file);
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_must_cover_the_file_without_gaps() {
        assert_eq!(parse_index("0 20\n20 17\n", 37), Ok(vec![0, 20, 37]));
        assert_eq!(parse_index("", 0), Ok(vec![0]));
        for (text, part) in [
            ("0 20\n20 17\n", "covers 37 bytes, but the shard has 40"),
            ("0 20\n21 19\n", "line 2: expected offset 20, got 21"),
            ("0 20\n20 x\n", "line 2: expected `offset size`"),
            ("0 20 20\n", "line 1: expected `offset size`"),
            ("0 41\n", "line 1: a record of 41 bytes at 0 does not fit"),
            ("0 5\n", "line 1: a record of 5 bytes"),
            ("0 18446744073709551615\n", "does not fit"),
        ] {
            let problem = parse_index(text, 40).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
