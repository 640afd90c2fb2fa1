//! One TFRecord file, mapped, with its index: the file `<shard>.idx` of lines `offset size` (the
//! layout that DALI's `tfrecord2idx` writes; size counts the framing). What the records mean is
//! `dataset`'s and `example`'s matter.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Fault};
use crate::mapping::Mapping;
use crate::record::{OVERHEAD, read_record};
use crate::replace::{replace, suffixed};

/// A mapped shard and where its records lie.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    mapping: Mapping,
    /// Start of each record, then the file's length: one more than there are records.
    offsets: Vec<u64>,
}

impl Shard {
    /// Maps the file and reads its index, which must cover the file from end to end without gaps.
    /// Records themselves are not touched.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mapping = Mapping::open(path)?;
        let index = index_path(path);
        let text = fs::read_to_string(&index).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NoIndex { index: index.clone(), dir: folder(path) },
            _ => Error::Io { action: "read", path: index.clone(), source },
        })?;
        let offsets = parse_index(&text, mapping.bytes().len() as u64).map_err(|problem| Error::Index {
            index,
            dir: folder(path),
            problem,
        })?;
        Ok(Self { path: path.to_owned(), mapping, offsets })
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

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
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
        let failed = |fault| self.fault(number, fault);
        let (payload, next) = read_record(self.bytes(), offset).map_err(|e| failed(e.into()))?;
        match self.offset(number + 1) {
            Some(end) if end == next => Ok(payload),
            end => Err(failed(Fault::Size { indexed: end.unwrap_or(offset) - offset, actual: next - offset })),
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

/// Where the index of a shard lies: `.idx` appended to the shard's file name.
pub fn index_path(shard: &Path) -> PathBuf {
    suffixed(shard, ".idx")
}

/// Writes the index of the shard at `shard`, whole or not at all. `entries` are (offset, size with
/// framing), as [`RecordWriter::write`](crate::record::RecordWriter::write) returns them.
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
