//! Checks the pages in a Parquet column before the `parquet` crate reads them, because it allocates the sizes stated in their headers.

use super::positioned::Positioned;
use super::thrift::Thrift;
use crate::text;
use ::parquet::basic::{Compression, Encoding};
use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::reader::{ChunkReader, Length};

/// Bytes that the crate allocates per dictionary value in addition to the data.
const VALUE: u64 = 40;
/// Maximum Snappy expansion: three bytes decompress to at most 64.
const SNAPPY: u64 = 22;
/// Bytes that a chunk may use beyond twice the size in the footer.
const SLACK: u64 = 4096;
/// Page types, from `PageType` in parquet.thrift.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;
/// The prefix encoding, which decodes to more bytes than the page has.
const PREFIXES: i64 = 7;

fn failed(what: String) -> ParquetError {
    ParquetError::General(what)
}

/// Facts from the page headers in a chunk.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Decompressed size in bytes for the largest page.
    pub largest: u64,
    /// Whether values are copied out of their pages and can therefore use more bytes than the pages.
    pub are_copied: bool,
}

/// Checks a file's footer.
///
/// # Errors
/// Returns an error if a list is longer than the footer.
pub(super) fn check_footer(file: &Positioned) -> Result<()> {
    let Some(at) = file.len().checked_sub(8) else { return Ok(()) };
    let tail = file.get_bytes(at, 8)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    // the crate reports all other errors
    let Some(start) = at.checked_sub(length).filter(|_| tail.ends_with(b"PAR1")) else { return Ok(()) };
    Thrift::new(file.get_read(start)?, length).structure().map_err(|e| failed(e.to_string()))?;
    Ok(())
}

/// Checks the page headers in a chunk with `rows` rows and a limit of `memory` bytes.
///
/// # Errors
/// Returns an error that names the page if a header is unreadable or asks for more than the page can hold or the limit allows.
pub(super) fn check(file: &Positioned, chunk: &ColumnChunkMetaData, rows: u64, memory: u64) -> Result<Pages> {
    let (mut at, length) = chunk.byte_range();
    let end = at.saturating_add(length);
    let (mut pages, mut sum, mut values) = (Pages::default(), 0u64, 0u64);
    let stated = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let mut number = 0u64;
    while at < end && values < rows {
        let page = |what: String| failed(format!("page {number} at byte {at}: {what}"));
        let mut header = Thrift::new(file.get_read(at)?, end - at);
        let numbers = header.structure().map_err(|e| page(format!("its header cannot be read: {e}")))?;
        let get = |path: &[i16]| numbers.iter().find(|(found, _)| found == path).map(|(_, number)| *number);
        let size = |field: i16, name: &str| {
            let size = get(&[field]).and_then(|size| u64::try_from(size).ok());
            size.ok_or_else(|| page(format!("its header gives no {name}")))
        };
        let (unpacked, packed) = (size(2, "uncompressed_page_size")?, size(3, "compressed_page_size")?);
        let most = if chunk.compression() == Compression::SNAPPY { packed.saturating_mul(SNAPPY) } else { packed };
        if packed > end - at - header.read || unpacked > most {
            let what = format!("{packed} bytes that unpack to {unpacked}, which is more than there are");
            return Err(page(what));
        }
        let count = |path: &[i16]| get(path).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        sum = sum.saturating_add(unpacked).saturating_add(header.read);
        match get(&[1]) {
            Some(DICTIONARY) => {
                let entries = count(&[7, 1]);
                // each value has at least four bytes: its length, or a number
                if entries > unpacked / 4 {
                    return Err(page(format!("a dictionary of {entries} values in {unpacked} bytes (num_values)")));
                }
                sum = sum.saturating_add(entries * VALUE);
                if sum > memory {
                    let what = format!("its dictionary takes {} of memory, more than is allowed", text::bytes(sum));
                    return Err(page(format!("{what}; raise --limit-memory if it is meant to be so large")));
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
            return Err(page(format!("the pages take {sum} bytes, the footer says {stated}")));
        }
        pages.largest = pages.largest.max(unpacked);
        at = at.saturating_add(header.read).saturating_add(packed);
        number += 1;
    }
    Ok(pages)
}

/// A page reader that also checks delta-encoded pages. They start with a value count that the crate uses to allocate memory.
pub(super) struct Checked {
    pub pages: Box<dyn PageReader>,
    /// Whether rows may be null.
    pub is_optional: bool,
}

impl Checked {
    fn checked(&self, page: Page) -> Result<Page> {
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
        let mut rest = Varints(buffer.get(levels..).unwrap_or(&[]));
        let columns = if encoding == Encoding::DELTA_BYTE_ARRAY { 2 } else { 1 };
        for _ in 0..columns {
            let passed = rest.pass_differences(values);
            passed.ok_or_else(|| failed(format!("differences of another number than the page's {values} values")))?;
        }
        Ok(page)
    }
}

/// Variable-length integers with seven bits per byte.
struct Varints<'a>(&'a [u8]);

impl Varints<'_> {
    fn next(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Skips a DELTA_BINARY_PACKED sequence with at most `most` values. Returns `None` if it has more values or ends early.
    fn pass_differences(&mut self, most: u64) -> Option<()> {
        let [block, parts, count, _first] = [self.next()?, self.next()?, self.next()?, self.next()?];
        if count > most || parts == 0 || block == 0 || block > 1 << 20 || parts > block {
            return None;
        }
        let (part, mut left) = (block / parts, count.saturating_sub(1));
        while left > 0 {
            self.next()?;
            let (widths, rest) = self.0.split_at_checked(usize::try_from(parts).ok()?)?;
            self.0 = rest;
            for &width in widths {
                if left == 0 {
                    // miniblocks after the last value are not stored
                    break;
                }
                let bytes = usize::try_from(u64::from(width) * part / 8).ok()?;
                // the last miniblock may be truncated
                self.0 = self.0.get(bytes..).unwrap_or(&[]);
                left = left.saturating_sub(part);
            }
        }
        Some(())
    }
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.map(|page| self.checked(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}
