//! Bounded reads of a file. No read leaves the file, and the total number of bytes read is bounded by the file's size,
//! no matter how its parts refer to each other.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Limit for the bytes read in total, as a multiple of the file size. In a valid file, most bytes are read once, and
/// strings and heap members twice. Circular references would read more.
const READ_FACTOR: u64 = 3;

/// Additional bytes, because small files read the same few bytes more often.
const EXTRA_READS: u64 = 1 << 20;

/// Maximum number of group members and strings that are kept in memory, where each needs several times its size in the
/// file. trireme writes three for a tensor and two for a class.
const MAX_PARTS: u64 = 1 << 22;

/// Bytes to read at once from an array.
const READ_SIZE: usize = 1 << 20;

/// A file of `length` bytes. Counts down how much may still be read from it, so that a forged file cannot use unlimited
/// time or memory.
pub(super) struct Source {
    file: File,
    length: u64,
    /// Number of bytes that may still be read.
    reads: Cell<u64>,
    /// Number of bytes that may still be returned as values. In a valid file, no two names refer to the same values.
    values: Cell<u64>,
    /// Number of members and strings that may still be kept.
    parts: Cell<u64>,
}

/// A copy of a part of the file. Other processes cannot change it while it is parsed.
pub(super) struct Block {
    at: u64,
    bytes: Vec<u8>,
}

impl Block {
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self.at, &self.bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Source {
    /// Creates a source of the first `length` bytes of an open file.
    pub(super) fn new(file: File, length: u64) -> Self {
        let reads = length.saturating_mul(READ_FACTOR).saturating_add(EXTRA_READS);
        Self { file, length, reads: Cell::new(reads), values: Cell::new(length), parts: Cell::new(MAX_PARTS) }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Copies `length` bytes at offset `at`. `what` describes them in messages.
    pub(super) fn block(&self, at: u64, length: u64, what: &str) -> Result<Block, Fault> {
        let length = self.check(at, length, what)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(Fault::Io)?;
        Ok(Block { at, bytes })
    }

    /// Reads `count` little-endian floats at offset `at`.
    pub(super) fn floats(&self, at: u64, count: usize) -> Result<Vec<f32>, Fault> {
        let length = self.check(at, (count as u64).saturating_mul(4), "values")?;
        self.count_value_bytes(length as u64, at)?;
        let mut values = Vec::with_capacity(count);
        let mut piece = vec![0; length.min(READ_SIZE)];
        for start in (0..length).step_by(READ_SIZE) {
            let piece = &mut piece[..(length - start).min(READ_SIZE)];
            self.file.read_exact_at(piece, at + start as u64).map_err(Fault::Io)?;
            values.extend(piece.chunks_exact(4).map(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]])));
        }
        Ok(values)
    }

    /// Counts bytes of values that are returned to a caller. Returns an error if they exceed the limit.
    pub(super) fn count_value_bytes(&self, bytes: u64, at: u64) -> Result<(), Fault> {
        let left = self.values.get().checked_sub(bytes);
        self.values
            .set(left.ok_or_else(|| Fault::layout(at, "values overlap: together they are larger than the file"))?);
        Ok(())
    }

    /// Counts a group member or a string, which is stored or listed at offset `at`. Returns an error if there are too
    /// many.
    pub(super) fn count_part(&self, at: u64) -> Result<(), Fault> {
        let left = self.parts.get().checked_sub(1);
        self.parts.set(left.ok_or_else(|| {
            Fault::layout(at, format!("the file has more than {MAX_PARTS} group members and strings"))
        })?);
        Ok(())
    }

    /// Returns an error if a range leaves the file, or if the total number of bytes read exceeds the limit.
    fn check(&self, at: u64, length: u64, what: &str) -> Result<usize, Fault> {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.length);
        expect(inside, at, || format!("{what} of {length} bytes should end within the file's {} bytes", self.length))?;
        let left = self.reads.get().checked_sub(length);
        self.reads.set(left.ok_or_else(|| Fault::layout(at, "its parts overlap or have circular references"))?);
        usize::try_from(length).map_err(|_| Fault::layout(at, format!("{what} of {length} bytes is too large")))
    }
}

/// HDF5 writes this for an address that does not exist.
const UNDEFINED: u64 = u64::MAX;

/// The unread rest of some bytes, with its offset in the file.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    at: u64,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Begins at the start of `bytes`, which are at offset `at` in the file.
    pub(super) fn new(at: u64, bytes: &'a [u8]) -> Self {
        Self { at, rest: bytes }
    }

    /// Returns the offset of the next byte in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let have = self.rest.len();
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split
            .ok_or_else(|| Fault::layout(self.at, format!("expected {length} bytes, but only {have} are left")))?;
        (self.at, self.rest) = (self.at + length, rest);
        Ok(taken)
    }

    /// Reads a little-endian number of up to eight bytes.
    pub(super) fn uint(&mut self, width: u64) -> Result<u64, Fault> {
        let mut number = [0; 8];
        let bytes = self.take(width.min(8))?;
        number[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(number))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    /// Reads an address, or `None` if it is undefined.
    pub(super) fn address(&mut self) -> Result<Option<u64>, Fault> {
        Ok(Some(self.uint(8)?).filter(|&address| address != UNDEFINED))
    }

    /// Reads an address that must exist. `what` describes its target in messages.
    pub(super) fn present(&mut self, what: &str) -> Result<u64, Fault> {
        let at = self.at;
        self.address()?.ok_or_else(|| Fault::layout(at, format!("the address of {what} is undefined")))
    }

    /// Reads a signature and the version after it.
    pub(super) fn signature(&mut self, mark: &[u8; 4], version: u8) -> Result<(), Fault> {
        let (at, got) = (self.at, self.take(4)?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        expect(got == mark, at, || format!("expected {}, got {:?}", text(mark), text(got)))?;
        self.exactly(u64::from(version), 1, &format!("version of {}", text(mark)))
    }

    /// Reads a number of `width` bytes, which must have the expected value. `what` describes it in messages.
    pub(super) fn exactly(&mut self, expected: u64, width: u64, what: &str) -> Result<(), Fault> {
        let (at, got) = (self.at, self.uint(width)?);
        expect(got == expected, at, || format!("{what}: expected {expected}, got {got}"))
    }

    /// Reads a UTF-8 string of `length` bytes.
    pub(super) fn text(&mut self, length: u64) -> Result<String, Fault> {
        let (at, bytes) = (self.at, self.take(length)?);
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        text.map(String::from).ok_or_else(|| Fault::layout(at, "a text that is not UTF-8 or contains a zero byte"))
    }
}

/// A reading error without the names of the file and the object.
#[derive(Debug)]
pub(in crate::checkpoint) enum Fault {
    /// An error of the operating system.
    Io(io::Error),
    /// A structure at `at` that trireme does not write.
    Layout {
        at: u64,
        /// What is wrong, with the expected and actual value.
        text: String,
    },
}

impl Fault {
    /// Returns the error for a structure at `at` that trireme does not write.
    pub(super) fn layout(at: u64, text: impl Into<String>) -> Self {
        Self::Layout { at, text: text.into() }
    }
}

/// Returns a layout error if `holds` is false.
pub(super) fn expect(holds: bool, at: u64, text: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::layout(at, text())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;

    #[test]
    fn reads_beyond_the_file_or_the_limit_are_refused() {
        let Temporary(path) = &Temporary::new("source");
        std::fs::write(path, [1; 4096]).unwrap();
        let source = Source::new(File::open(path).unwrap(), 4096);
        for (at, length) in [(0, 4097), (4096, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(matches!(source.block(at, length, "it"), Err(Fault::Layout { .. })), "{length} bytes at {at}");
        }
        assert_eq!(source.floats(0, 1023).unwrap(), vec![f32::from_bits(0x0101_0101); 1023]);
        // All values together may be returned only once.
        assert!(source.floats(0, 1).is_ok() && matches!(source.floats(8, 1), Err(Fault::Layout { .. })));
        assert!(source.floats(0, usize::MAX).is_err());
        assert_eq!((0..).take_while(|_| source.count_part(0).is_ok()).count() as u64, MAX_PARTS);
        let reads = (0..1_000_000).take_while(|_| source.block(0, 4096, "it").is_ok()).count() as u64;
        assert_eq!(reads, (4096 * READ_FACTOR + EXTRA_READS - 4096) / 4096 - 1);
    }
}
