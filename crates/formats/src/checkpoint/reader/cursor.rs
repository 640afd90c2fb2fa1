//! A place in a copied part of the file; every step is checked.

use super::fault::{Fault, expect};

/// What HDF5 writes in place of an address that there is none of.
const UNDEFINED: u64 = u64::MAX;

/// Bytes, the offset in the file that they come from, and how far they are read.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    at: u64,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// At the beginning of `bytes`, which stand at `at` in the file.
    pub(super) fn new(at: u64, bytes: &'a [u8]) -> Self {
        Self { at, rest: bytes }
    }

    /// Offset in the file of what comes next.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let have = self.rest.len();
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) =
            split.ok_or_else(|| Fault::layout(self.at, format!("expected {length} bytes, {have} left")))?;
        (self.at, self.rest) = (self.at + length, rest);
        Ok(taken)
    }

    /// A little-endian number of up to eight bytes.
    pub(super) fn uint(&mut self, width: u64) -> Result<u64, Fault> {
        let mut number = [0; 8];
        let bytes = self.take(width.min(8))?;
        number[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(number))
    }

    /// A byte.
    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    /// An address, if there is one.
    pub(super) fn address(&mut self) -> Result<Option<u64>, Fault> {
        Ok(Some(self.uint(8)?).filter(|&address| address != UNDEFINED))
    }

    /// An address that must be there; `what` it is of.
    pub(super) fn present(&mut self, what: &str) -> Result<u64, Fault> {
        let at = self.at;
        self.address()?.ok_or_else(|| Fault::layout(at, format!("no address of {what}")))
    }

    /// A mark and the version after it.
    pub(super) fn signature(&mut self, mark: &[u8; 4], version: u8) -> Result<(), Fault> {
        let (at, got) = (self.at, self.take(4)?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        expect(got == mark, at, || format!("expected {}, got {:?}", text(mark), text(got)))?;
        self.exactly(u64::from(version), 1, &format!("version of {}", text(mark)))
    }

    /// A number of `width` bytes that is the same in all files of trireme; `what` it is.
    pub(super) fn exactly(&mut self, expected: u64, width: u64, what: &str) -> Result<(), Fault> {
        let (at, got) = (self.at, self.uint(width)?);
        expect(got == expected, at, || format!("{what}: expected {expected}, got {got}"))
    }

    /// A text of `length` bytes.
    pub(super) fn text(&mut self, length: u64) -> Result<String, Fault> {
        let (at, bytes) = (self.at, self.take(length)?);
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        text.map(String::from).ok_or_else(|| Fault::layout(at, "a text that is no UTF-8, or has a zero byte in it"))
    }
}
