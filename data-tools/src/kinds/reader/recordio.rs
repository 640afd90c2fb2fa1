//! The RecordIO format of MXNet: `u32 magic | u32 kind << 29 | length | data | zeros up to a multiple of 4`, little
//! endian. If the data contains the magic number at a multiple of 4, it is split into parts there, and the magic number
//! is left out. The data of an image is `u32 flag | f32 label | u64 id | u64 id2`, followed by `flag` labels of 4 bytes
//! and the image file.

use super::input::open_sized;
use crate::error::Error;
use crate::source::MAX_CLASS;
use crate::text;
use loaders::Limits;
use loaders::stall::during;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

const MAGIC: u32 = 0xced7_230a;
/// Size of a part's header in bytes.
const HEADER: u64 = 8;
/// Size of an image's header, without labels.
const IMAGE_HEADER: usize = 24;
/// Memory for a record in the list, including a possible error message.
const RECORD: u64 = 192;

/// The position of a part in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    First,
    Middle,
    Last,
}

struct Part {
    kind: Kind,
    length: u64,
}

impl Part {
    /// Parses the two words of a header. Returns `None` if they are invalid.
    fn parse([magic, word]: [u32; 2]) -> Option<Self> {
        let kind = [Kind::Whole, Kind::First, Kind::Middle, Kind::Last].get((word >> 29) as usize).copied();
        let length = u64::from(word & ((1 << 29) - 1));
        kind.filter(|_| magic == MAGIC).map(|kind| Part { kind, length })
    }
}

/// A record of a file: an image with its label.
pub(crate) struct Record {
    /// The class, or the problem with the record's header.
    pub label: Result<u32, String>,
    /// Byte offset of the record's header.
    pub start: u64,
    /// Range of its image. For a split record, the range of all parts with their headers.
    pub range: Range<u64>,
    pub is_split: bool,
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    length: u64,
    at: u64,
    record: u64,
}

/// Lists all records of the file at `path` by reading their headers. Returns an error if the file is damaged or
/// truncated, or if its records need more memory than allowed.
pub(crate) fn list(path: &Path, limits: &Limits) -> Result<Vec<Record>, Error> {
    during("reading", path, || list_all(path, limits))
}

fn list_all(path: &Path, limits: &Limits) -> Result<Vec<Record>, Error> {
    let (file, length) = open_sized(path)?;
    let mut reader = Reader { path, file: BufReader::with_capacity(1 << 12, file), length, at: 0, record: 0 };
    let mut records = Vec::new();
    while reader.at < length {
        if records.len() as u64 * RECORD > limits.allowed(length) {
            let what =
                "the list of records exceeds the memory limit; the file is damaged, or --limit-memory must be raised";
            return Err(reader.fault(reader.at, what));
        }
        records.push(reader.record()?);
        reader.record += 1;
    }
    if records.is_empty() {
        return Err(Error::input(path, "the file is empty; fetch it again"));
    }
    Ok(records)
}

impl Reader<'_> {
    fn fault(&self, start: u64, what: &str) -> Error {
        Error::input(self.path, format!("record {} at byte {start}: {what}", self.record))
    }

    /// Reads the header of the next part and checks that all of its data exists.
    fn part(&mut self, start: u64) -> Result<Part, Error> {
        let left = self.length - self.at;
        let mut words = [0; HEADER as usize];
        if left < HEADER {
            return Err(self.cut(start, HEADER));
        }
        self.read(&mut words)?;
        let (magic, word) = words.split_at(4);
        let words = [magic, word].map(|bytes| bytes.iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte)));
        let Some(part) = Part::parse(words) else {
            let what = format!(
                "expected the magic number {MAGIC:#010x} at byte {}, got {:#010x}: the file is damaged or not RecordIO; fetch it again",
                self.at, words[0]
            );
            return Err(self.fault(start, &what));
        };
        if part.length > left - HEADER {
            return Err(self.cut(start, HEADER + part.length));
        }
        self.at += HEADER;
        Ok(part)
    }

    fn cut(&self, start: u64, needed: u64) -> Error {
        let part = if start == self.at { String::new() } else { format!("its part at byte {} ", self.at) };
        let left = text::plural(self.length - self.at, "byte");
        self.fault(
            start,
            &format!("cut short: {part}needs {needed} bytes, but only {left} exist; fetch the file again"),
        )
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact(bytes).map_err(|e| Error::io("read", self.path, e))
    }

    /// Skips data of `length` bytes and its padding. `read` bytes of it have already been read.
    fn skip(&mut self, length: u64, read: u64) -> Result<(), Error> {
        // In some files the last part has no padding.
        let end = (self.at + length.next_multiple_of(4)).min(self.length);
        let by = end - self.at - read;
        self.at = end;
        self.file.seek_relative(by as i64).map_err(|e| Error::io("read", self.path, e))
    }

    fn record(&mut self) -> Result<Record, Error> {
        let start = self.at;
        let part = self.part(start)?;
        match part.kind {
            Kind::Whole => {
                let data = self.at;
                let mut head = vec![0; (IMAGE_HEADER as u64 + 4).min(part.length) as usize];
                self.read(&mut head)?;
                let image = image(&head, part.length);
                self.skip(part.length, head.len() as u64)?;
                let first = image.as_ref().map_or(0, |image| image.start as u64);
                let range = data + first..data + part.length;
                Ok(Record { label: image.map(|image| image.label), start, range, is_split: false })
            }
            Kind::First => {
                self.skip(part.length, 0)?;
                self.rest(start)
            }
            _ => Err(self.fault(
                start,
                "this is a later part of a split record, but its first part is missing; fetch the file again",
            )),
        }
    }

    /// Reads the remaining parts of a record that began at `start`, and its label.
    fn rest(&mut self, start: u64) -> Result<Record, Error> {
        loop {
            if self.at >= self.length {
                let what = format!(
                    "cut short: the file ends at byte {} before the last part of a split record; fetch it again",
                    self.at
                );
                return Err(self.fault(start, &what));
            }
            let (at, part) = (self.at, self.part(start)?);
            if matches!(part.kind, Kind::Whole | Kind::First) {
                let what = format!(
                    "the last part of a split record is missing, because another record begins at byte {at}; fetch the file again"
                );
                return Err(self.fault(start, &what));
            }
            self.skip(part.length, 0)?;
            if part.kind == Kind::Last {
                break;
            }
        }
        let mut bytes = vec![0; (self.at - start) as usize];
        self.file
            .seek(SeekFrom::Start(start))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|e| Error::io("read", self.path, e))?;
        join(&mut bytes).map_err(|what| self.fault(start, what))?;
        let image = image(&bytes, bytes.len() as u64);
        Ok(Record { label: image.map(|image| image.label), start, range: start..self.at, is_split: true })
    }
}

/// The label of an image, and the offset of the image file in the data.
struct Image {
    label: u32,
    start: usize,
}

/// Parses an image's header. `length` is the size in bytes, header included.
fn image(data: &[u8], length: u64) -> Result<Image, String> {
    let word = |at: usize| data.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let short = || {
        format!(
            "the record has {} bytes, but an image header has {IMAGE_HEADER}; it was not written by im2rec",
            data.len()
        )
    };
    let flag = word(0).map(u32::from_le_bytes).filter(|_| data.len() >= IMAGE_HEADER).ok_or_else(short)?;
    let label = match flag {
        0 => word(4).map(f32::from_le_bytes),
        1 => word(IMAGE_HEADER).map(f32::from_le_bytes),
        many if IMAGE_HEADER as u64 + 4 * u64::from(many) >= length => {
            return Err(format!(
                "the record has {many} labels and no image; it probably describes the file, as record 0 of InsightFace's files does"
            ));
        }
        many => return Err(format!("the record has {many} labels; expected one class per image")),
    };
    let label = label.ok_or_else(short)?;
    if label.fract() != 0.0 || !(0.0..=MAX_CLASS as f32).contains(&label) {
        return Err(format!("the label is {label}; expected an integer from 0 to {MAX_CLASS}"));
    }
    let start = IMAGE_HEADER + 4 * flag as usize;
    if start as u64 > length {
        return Err("the labels extend beyond the end of the record; fetch the file again".into());
    }
    Ok(Image { label: label as u32, start })
}

/// Joins the parts of a split record in place.
fn join(bytes: &mut Vec<u8>) -> Result<(), &'static str> {
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() {
        let header: Option<&[u8; HEADER as usize]> = bytes[from..].first_chunk();
        let [a, b, c, d, e, f, g, h] = *header.ok_or("the file changed while it was read")?;
        let part = Part::parse([u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]);
        let part = part.ok_or("the file changed while it was read")?;
        if from > 0 {
            // The record was split here. There is enough room, because each part had a header.
            bytes[to..to + 4].copy_from_slice(&MAGIC.to_le_bytes());
            to += 4;
        }
        let start = from + HEADER as usize;
        let end = start + part.length as usize;
        if end > bytes.len() {
            return Err("the file changed while it was read");
        }
        bytes.copy_within(start..end, to);
        to += part.length as usize;
        from = start + part.length.next_multiple_of(4) as usize;
    }
    bytes.truncate(to);
    Ok(())
}

/// Replaces the parts of a split record by its image file.
pub(crate) fn image_of_parts(bytes: &mut Vec<u8>) -> io::Result<()> {
    let failed = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    join(bytes).map_err(|what| failed(what.to_string()))?;
    let image = image(bytes, bytes.len() as u64).map_err(failed)?;
    bytes.drain(..image.start);
    Ok(())
}
