//! Parses the superblock, which has the address of the root group, and object headers (version 2). An object header is
//! a list of messages that describe a group or an array, including shape and type.

use std::collections::BTreeSet;

use super::source::{Cursor, Fault, Source, expect};

pub(super) mod kind {
    pub(in super::super) const DATASPACE: u8 = 0x01;
    pub(in super::super) const LINK_INFO: u8 = 0x02;
    pub(in super::super) const DATATYPE: u8 = 0x03;
    pub(in super::super) const LINK: u8 = 0x06;
    pub(in super::super) const EXTERNAL: u8 = 0x07;
    pub(in super::super) const LAYOUT: u8 = 0x08;
    pub(in super::super) const FILTERS: u8 = 0x0b;
    pub(in super::super) const ATTRIBUTE: u8 = 0x0c;
    pub(in super::super) const SYMBOL_TABLE: u8 = 0x11;
    pub(in super::super) const ATTRIBUTE_INFO: u8 = 0x15;
    pub(super) const CONTINUATION: u8 = 0x10;
    /// Padding, the fill value of an array, and constants of a group. They do not affect reading.
    pub(super) const IGNORED: [u8; 3] = [0x00, 0x05, 0x0a];
}

/// Maximum length of a header before its messages.
const PREFIX: u64 = 14;

/// Maximum number of blocks of messages per header: the first one and its continuation blocks. trireme writes fewer than
/// ten.
const MAX_PIECES: usize = 256;

/// Maximum number of messages per header. trireme writes fewer than thirty, because more than eight members are stored
/// in a heap.
const MAX_MESSAGES: usize = 1024;

pub(super) struct Message {
    /// A constant of the module [`kind`].
    pub(super) kind: u8,
    at: u64,
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self.at, &self.bytes)
    }
}

/// Reads the messages of the header at `address`, in the order of the file.
pub(super) fn messages(source: &Source, address: u64) -> Result<Vec<Message>, Fault> {
    let most = source.length().saturating_sub(address).min(PREFIX);
    let prefix = source.block(address, most, "an object header")?;
    let mut cursor = prefix.cursor();
    cursor.signature(b"OHDR", 2)?;
    let flags = cursor.u8()?;
    // Other flags announce times, creation order and limits, which trireme never writes.
    expect(flags <= 3, address, || format!("object header flags: expected 0 to 3, got {flags}"))?;
    let length = cursor.uint(1 << flags)?;
    let mut pieces = vec![(cursor.at(), length)];
    let (mut seen, mut messages) = (BTreeSet::new(), Vec::new());
    while let Some((at, length)) = pieces.pop() {
        expect(seen.insert(at) && seen.len() <= MAX_PIECES, at, || "a circular object header".into())?;
        let block = source.block(at, length, "the messages of an object header")?;
        let mut cursor = block.cursor();
        while let Some(message) = next_message(&mut cursor)? {
            match message.kind {
                kind::CONTINUATION => pieces.push(continuation(source, &message)?),
                kind if kind::IGNORED.contains(&kind) => {}
                _ => messages.push(message),
            }
            expect(messages.len() <= MAX_MESSAGES, at, || {
                format!("an object header with more than {MAX_MESSAGES} messages")
            })?;
        }
    }
    Ok(messages)
}

/// Returns the next message, or `None` if the rest is too short for a message. HDF5 leaves such a gap at the end of the
/// header and of each continuation block.
fn next_message(cursor: &mut Cursor<'_>) -> Result<Option<Message>, Fault> {
    if cursor.rest().len() < 4 {
        return Ok(None);
    }
    let begin = cursor.at();
    let (kind, length, flags) = (cursor.u8()?, cursor.uint(2)?, cursor.u8()?);
    expect(flags & 0b10 == 0, begin, || "a message that is shared between objects".into())?;
    let at = cursor.at();
    Ok(Some(Message { kind, at, bytes: cursor.take(length)?.to_vec() }))
}

/// Returns the offset and length of the messages in the continuation block that `message` refers to, without its
/// signature and checksum.
fn continuation(source: &Source, message: &Message) -> Result<(u64, u64), Fault> {
    let mut cursor = message.cursor();
    let (at, length) = (cursor.present("a continuation block of an object header")?, cursor.uint(8)?);
    let mark = source.block(at, 4, "a continuation block of an object header")?;
    expect(mark.bytes() == b"OCHK", at, || "expected OCHK, the signature of a continuation block".into())?;
    let inner = length
        .checked_sub(8)
        .ok_or_else(|| Fault::layout(at, format!("a continuation block has {length} bytes, expected at least 8")))?;
    Ok((at + 4, inner))
}

/// Length of a superblock of version 2.
const SUPERBLOCK_LENGTH: u64 = 48;

/// The version that trireme writes. Versions 0 and 1 are from older libraries, 3 is from HDF5 1.10 and later.
const SUPERBLOCK_VERSION: u64 = 2;

/// Returns the address of the root group's object header.
pub(super) fn root(source: &Source) -> Result<u64, Fault> {
    let block = source.block(0, SUPERBLOCK_LENGTH, "the superblock")?;
    let mut cursor = block.cursor();
    // The signature has been checked already.
    cursor.take(8)?;
    cursor.exactly(SUPERBLOCK_VERSION, 1, "superblock version")?;
    cursor.exactly(8, 1, "offset size")?;
    cursor.exactly(8, 1, "length size")?;
    cursor.exactly(0, 1, "superblock flags")?;
    cursor.exactly(0, 8, "base address")?;
    let (at, extension) = (cursor.at(), cursor.address()?);
    expect(extension.is_none(), at, || "expected no superblock extension".into())?;
    cursor.exactly(source.length(), 8, "file length")?;
    cursor.present("the root group")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::checkpoint) enum Datatype {
    F32,
    F64,
    U32,
    U64,
    /// A UTF-8 string of variable length, stored in a global heap.
    Text,
}

/// How HDF5 encodes the supported types, with the version set to 0. The version is in the upper half of the first byte
/// and depends on the HDF5 library.
const ENCODINGS: [(Datatype, &[u8]); 5] = [
    (Datatype::F32, &[1, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0]),
    (Datatype::F64, &[1, 0x20, 63, 0, 8, 0, 0, 0, 0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0]),
    (Datatype::U32, &[0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0]),
    (Datatype::U64, &[0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0]),
    (Datatype::Text, &[9, 1, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]),
];

/// Offsets of the bytes that contain a version: the type's own, and that of the base type of a string.
const VERSIONS: [usize; 2] = [0, 8];

/// Parses the type encoded at offset `at`.
pub(super) fn parse_datatype(at: u64, bytes: &[u8]) -> Result<Datatype, Fault> {
    let same = |(datatype, encoding): &(Datatype, &[u8])| {
        let places = if *datatype == Datatype::Text { &VERSIONS[..] } else { &VERSIONS[..1] };
        let plain = |(i, &byte): (usize, &u8)| if places.contains(&i) { byte & 0x0f } else { byte };
        bytes.len() == encoding.len() && bytes.iter().enumerate().map(plain).eq(encoding.iter().copied())
    };
    let found = ENCODINGS.iter().find(|encoding| same(encoding));
    let refusal = || Fault::layout(at, format!("a value type that trireme does not write: {bytes:02x?}"));
    found.map(|(datatype, _)| *datatype).ok_or_else(refusal)
}

impl Datatype {
    /// Returns the name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::U32 => "U32",
            Self::U64 => "U64",
            Self::Text => "strings",
        }
    }

    /// Returns the size of a value in bytes. For a string, this is the size of the reference.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F64 | Self::U64 => 8,
            Self::Text => super::heap::REFERENCE,
        }
    }
}

/// Maximum number of dimensions in HDF5.
const MAX_DIMENSIONS: u8 = 32;

/// A shape, or `None` for a scalar.
pub(super) type Shape = Option<Vec<usize>>;

/// Parses a dataspace of version 2.
pub(super) fn parse_shape(mut cursor: Cursor<'_>) -> Result<Shape, Fault> {
    let at = cursor.at();
    cursor.exactly(2, 1, "dataspace version")?;
    let (rank, flags, kind) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    if kind == 0 && rank == 0 {
        return Ok(None);
    }
    let sound = kind == 1 && (1..=MAX_DIMENSIONS).contains(&rank) && flags <= 1;
    expect(sound, at, || format!("a dataspace of kind {kind} with {rank} dimensions and flags {flags}"))?;
    let size = |_| {
        let (at, size) = (cursor.at(), cursor.uint(8)?);
        usize::try_from(size).map_err(|_| Fault::layout(at, format!("a dimension of {size}")))
    };
    (0..rank).map(size).collect::<Result<_, _>>().map(Some)
}

/// Returns the product of the sizes.
pub(super) fn element_count(shape: &[usize], at: u64) -> Result<u64, Fault> {
    let product = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    product.ok_or_else(|| Fault::layout(at, format!("a shape of {shape:?}, too large for any file")))
}
