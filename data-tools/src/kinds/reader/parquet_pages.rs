//! Checks the pages in a Parquet column before the `parquet` crate reads them, because it allocates the sizes stated in their headers.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding};
use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use loaders::protobuf::varint;

use crate::text;

/// Bytes that the crate allocates per dictionary value, in addition to the data.
const VALUE: u64 = 40;
/// Maximum Snappy expansion: three bytes decompress to at most 64.
const SNAPPY: u64 = 22;
/// Bytes that a chunk may use beyond twice the size in the footer.
const SLACK: u64 = 4096;
/// Page types, from `PageType` in parquet.thrift.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;
/// DELTA_BYTE_ARRAY: values share prefixes, so they decode to more bytes than the page has.
const PREFIXES: i64 = 7;

fn failed(what: String) -> ParquetError {
    ParquetError::General(what)
}

/// Values collected from the page headers of a chunk.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Decompressed size of the largest page in bytes.
    pub largest: u64,
    /// True if values are copied out of their pages and can therefore use more bytes than the pages.
    pub are_copied: bool,
}

/// Checks a file's footer. Returns an error if a list is longer than the footer.
pub(super) fn check_footer(file: &SizedFile) -> Result<()> {
    let Some(at) = file.len().checked_sub(8) else { return Ok(()) };
    let tail = file.get_bytes(at, 8)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    // The crate reports other faults of the footer.
    let Some(start) = at.checked_sub(length).filter(|_| tail.ends_with(b"PAR1")) else { return Ok(()) };
    Thrift::new(file.get_read(start)?, length).structure().map_err(|e| failed(e.to_string()))?;
    Ok(())
}

/// Checks the page headers in a chunk with `rows` rows and a limit of `memory` bytes. Returns an error that names the
/// page if a header is unreadable or asks for more than the page can hold or the limit allows.
pub(super) fn check(file: &SizedFile, chunk: &ColumnChunkMetaData, rows: u64, memory: u64) -> Result<Pages> {
    let (mut at, length) = chunk.byte_range();
    let end = at.saturating_add(length);
    let (mut pages, mut sum, mut values) = (Pages::default(), 0u64, 0u64);
    let stated = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let mut number = 0u64;
    while at < end && values < rows {
        let page = |what: String| failed(format!("page {number} at byte {at}: {what}"));
        let mut header = Thrift::new(file.get_read(at)?, end - at);
        let numbers = header.structure().map_err(|e| page(format!("the header cannot be read: {e}")))?;
        let get = |path: &[i16]| numbers.iter().find(|(found, _)| found == path).map(|(_, number)| *number);
        let size = |field: i16, name: &str| {
            let size = get(&[field]).and_then(|size| u64::try_from(size).ok());
            size.ok_or_else(|| page(format!("the header has no {name}")))
        };
        let (unpacked, packed) = (size(2, "uncompressed_page_size")?, size(3, "compressed_page_size")?);
        let most = if chunk.compression() == Compression::SNAPPY { packed.saturating_mul(SNAPPY) } else { packed };
        let left = end - at - header.read;
        if packed > left {
            return Err(page(format!("the header says {packed} bytes, but only {left} are left in the column")));
        }
        if unpacked > most {
            return Err(page(format!(
                "the header says that {packed} bytes unpack to {unpacked}; expected at most {most}"
            )));
        }
        let count = |path: &[i16]| get(path).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        sum = sum.saturating_add(unpacked).saturating_add(header.read);
        match get(&[1]) {
            Some(DICTIONARY) => {
                let entries = count(&[7, 1]);
                // Each value has at least four bytes: its length, or a number.
                if entries > unpacked / 4 {
                    let most = unpacked / 4;
                    return Err(page(format!(
                        "the header says {entries} dictionary values (num_values); expected at most {most}"
                    )));
                }
                sum = sum.saturating_add(entries * VALUE);
                if sum > memory {
                    let what = format!("the dictionary needs {} of memory, which exceeds the limit", text::bytes(sum));
                    return Err(page(format!("{what}; if this is intended, raise --limit-memory")));
                }
                sum -= entries * VALUE;
            }
            Some(DATA) => {
                values = values.saturating_add(count(&[5, 1]));
                pages.are_copied |= get(&[5, 2]) == Some(PREFIXES);
            }
            Some(DATA_V2) => {
                values = values.saturating_add(count(&[8, 1]));
                pages.are_copied |= get(&[8, 4]) == Some(PREFIXES);
            }
            _ => {}
        }
        if sum > stated.saturating_mul(2).saturating_add(SLACK) {
            return Err(page(format!(
                "the pages up to here have {sum} bytes, but the footer says {stated} for the whole column"
            )));
        }
        pages.largest = pages.largest.max(unpacked);
        at = at.saturating_add(header.read).saturating_add(packed);
        number += 1;
    }
    Ok(pages)
}

/// A page reader that also checks delta-encoded pages. They start with a value count that the crate uses to allocate memory.
pub(super) struct CheckedPages {
    pub pages: Box<dyn PageReader>,
    /// True if rows of the column may be null.
    pub is_optional: bool,
}

impl CheckedPages {
    fn check_page(&self, page: Page) -> Result<Page> {
        let (encoding, values) = (page.encoding(), u64::from(page.num_values()));
        let delta = [Encoding::DELTA_BINARY_PACKED, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY];
        if !delta.contains(&encoding) {
            return Ok(page);
        }
        let buffer = page.buffer();
        let levels = match &page {
            Page::DataPage { .. } if self.is_optional => {
                let length = buffer.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
                4 + length as usize
            }
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize
            }
            _ => 0,
        };
        let mut rest = buffer.get(levels..).unwrap_or(&[]);
        let columns = if encoding == Encoding::DELTA_BYTE_ARRAY { 2 } else { 1 };
        for _ in 0..columns {
            let passed = skip_differences(&mut rest, values);
            passed.ok_or_else(|| {
                failed(format!("the number of differences does not match the page's {values} values"))
            })?;
        }
        Ok(page)
    }
}

/// Skips a DELTA_BINARY_PACKED sequence with at most `most` values. Returns `None` if it has more values or ends early.
fn skip_differences(bytes: &mut &[u8], most: u64) -> Option<()> {
    let [block, parts, count, _first] =
        [varint(bytes).ok()?, varint(bytes).ok()?, varint(bytes).ok()?, varint(bytes).ok()?];
    if count > most || parts == 0 || block == 0 || block > 1 << 20 || parts > block {
        return None;
    }
    let (part, mut left) = (block / parts, count.saturating_sub(1));
    while left > 0 {
        varint(bytes).ok()?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        *bytes = rest;
        for &width in widths {
            if left == 0 {
                // Miniblocks after the last value are not stored.
                break;
            }
            let length = usize::try_from(u64::from(width) * part / 8).ok()?;
            // The last miniblock may be truncated.
            *bytes = bytes.get(length..).unwrap_or(&[]);
            left = left.saturating_sub(part);
        }
    }
    Some(())
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.map(|page| self.check_page(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

// Skips structures in Thrift's compact protocol and collects some integers. It is used to check sizes before the `parquet` crate allocates
// memory for them. See Apache Thrift, "Thrift Compact protocol encoding".

/// Maximum nesting depth. Parquet uses fewer than ten levels.
const MAX_DEPTH: u32 = 32;

/// Integers in a structure, each with its path of field ids.
pub(super) type Numbers = Vec<(Vec<i16>, i64)>;

/// A stream of Thrift structures.
pub(super) struct Thrift<R> {
    from: R,
    /// Number of bytes read so far.
    pub read: u64,
    /// The highest number of bytes to read.
    most: u64,
}

impl<R: Read> Thrift<R> {
    /// Reads structures from the next `most` bytes in a stream.
    pub fn new(from: R, most: u64) -> Self {
        Thrift { from, read: 0, most }
    }

    /// Skips a structure. Returns its integers, except for those in lists or more than three levels deep. Returns an
    /// error if a structure has no end or a list is longer than the remaining bytes.
    pub fn structure(&mut self) -> io::Result<Numbers> {
        let mut numbers = Vec::new();
        self.fields(&mut Vec::new(), Some(&mut numbers))?;
        Ok(numbers)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.take(N as u64)?;
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Counts bytes that will be read next. Returns an error if they exceed the limit.
    fn take(&mut self, count: u64) -> io::Result<()> {
        if count > self.most - self.read {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read += count;
        Ok(())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.bytes()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(bad("a number of more than 64 bits"))
    }

    fn zigzag(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn fields(&mut self, path: &mut Vec<i16>, mut numbers: Option<&mut Numbers>) -> io::Result<()> {
        let mut field = 0i16;
        loop {
            let [head] = self.bytes()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.zigzag()? as i16,
                step => field.wrapping_add(step.into()),
            };
            path.push(field);
            self.value(head & 15, path, numbers.as_deref_mut())?;
            path.pop();
        }
    }

    fn value(&mut self, kind: u8, path: &mut Vec<i16>, numbers: Option<&mut Numbers>) -> io::Result<()> {
        match kind {
            1 | 2 => Ok(()),
            3 => self.bytes::<1>().map(drop),
            4..=6 => {
                let number = self.zigzag()?;
                if let Some(numbers) = numbers.filter(|_| path.len() <= 3) {
                    numbers.push((path.clone(), number));
                }
                Ok(())
            }
            7 => self.bytes::<8>().map(drop),
            8 => {
                let length = self.varint()?;
                self.take(length)?;
                let passed = io::copy(&mut (&mut self.from).take(length), &mut io::sink())?;
                if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            9 | 10 => {
                let [head] = self.bytes()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.elements(count, &[head & 15], path)
            }
            11 => match self.varint()? {
                0 => Ok(()),
                count => {
                    let [kinds] = self.bytes()?;
                    self.elements(count, &[kinds >> 4, kinds & 15], path)
                }
            },
            12 if path.len() as u32 <= MAX_DEPTH => self.fields(path, numbers),
            12 => Err(bad("structures are nested too deeply")),
            other => Err(bad(&format!("a value of the unknown type {other}"))),
        }
    }

    fn elements(&mut self, count: u64, kinds: &[u8], path: &mut Vec<i16>) -> io::Result<()> {
        // Each element needs at least one byte.
        if count > self.most - self.read {
            return Err(bad(&format!("a list of {count} elements in {} bytes", self.most - self.read)));
        }
        path.push(0);
        for _ in 0..count {
            for kind in kinds {
                match kind {
                    // In a list, a boolean has one byte.
                    1 | 2 => self.bytes::<1>().map(drop)?,
                    _ => self.value(*kind, path, None)?,
                }
            }
        }
        path.pop();
        Ok(())
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A file of known length that is read at any offset.
#[derive(Debug, Clone)]
pub(crate) struct SizedFile {
    file: Arc<File>,
    length: u64,
}

impl SizedFile {
    pub(crate) fn new(file: File, length: u64) -> Self {
        SizedFile { file: Arc::new(file), length }
    }
}

impl Length for SizedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

/// A stream that starts at some position of a file.
pub(crate) struct FileStream {
    file: Arc<File>,
    at: u64,
}

impl Read for FileStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(out, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl ChunkReader for SizedFile {
    type T = BufReader<FileStream>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(FileStream { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.saturating_add(length as u64) > self.length {
            let what = format!("{length} bytes at byte {start} of a file of {} bytes", self.length);
            return Err(ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<(Numbers, u64)> {
        let mut thrift = Thrift::new(bytes, bytes.len() as u64);
        thrift.structure().map(|numbers| (numbers, thrift.read))
    }

    #[test]
    fn numbers_are_noted_and_all_else_is_passed() {
        // i32 3, a text, a list with two i32, long-form field 20 holding a structure with i64 -2 and true, a map from
        // byte to double.
        let whole = [
            0x15, 6, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x0c, 40, 0x16, 3, 0x11, 0, 0x1b, 1, 0x37, 9, 0, 0, 0, 0,
            0, 0, 0, 0, 0,
        ];
        let expected = vec![(vec![1], 3), (vec![20, 1], -2)];
        assert_eq!(read(&whole).unwrap(), (expected, whole.len() as u64));
        assert!((0..whole.len()).all(|cut| read(&whole[..cut]).is_err()));
    }

    #[test]
    fn long_lists_and_deep_structures_are_refused() {
        // A list with 2^31 structures.
        let error = read(&[0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 8, 0, 0]).unwrap_err().to_string();
        assert!(error.contains("2147483648 elements") && error.contains(" 2 bytes"), "{error}");
        assert!(read(&[0x1c; 5000]).unwrap_err().to_string().contains("nested too deeply"));
        assert!(read(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }
}
