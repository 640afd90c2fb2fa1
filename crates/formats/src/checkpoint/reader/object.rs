//! Object headers of version 2: the list of messages that a group or an array consists of.

use std::collections::BTreeSet;

use super::cursor::Cursor;
use super::fault::{Fault, expect};
use super::source::Source;

/// Kinds of messages.
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
    /// Padding, an array's fill value, constants of a group: nothing that changes what is read.
    pub(super) const IGNORED: [u8; 3] = [0x00, 0x05, 0x0a];
}

/// Bytes of a header before its messages, at most.
const PREFIX: u64 = 14;

/// Pieces of one header at most; those of trireme have fewer than ten.
const MOST_PIECES: usize = 256;

/// Messages of one header at most; those of trireme have fewer than thirty, since more members than eight stand in a heap.
const MOST_MESSAGES: usize = 1024;

/// A message of a header.
pub(super) struct Message {
    /// One of [`kind`].
    pub(super) kind: u8,
    at: u64,
    bytes: Vec<u8>,
}

impl Message {
    /// A cursor at its beginning.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self.at, &self.bytes)
    }
}

/// The messages of the header at `address`, in the order of the file.
pub(super) fn messages(source: &Source, address: u64) -> Result<Vec<Message>, Fault> {
    let most = source.length().saturating_sub(address).min(PREFIX);
    let prefix = source.block(address, most, "an object header")?;
    let mut cursor = prefix.cursor();
    cursor.signature(b"OHDR", 2)?;
    let flags = cursor.u8()?;
    // more of them tell of times, orders of creation and limits, none of which trireme writes
    expect(flags <= 3, address, || format!("flags of an object header: expected 0 to 3, got {flags}"))?;
    let length = cursor.uint(1 << flags)?;
    let mut pieces = vec![(cursor.at(), length)];
    let (mut seen, mut messages) = (BTreeSet::new(), Vec::new());
    while let Some((at, length)) = pieces.pop() {
        expect(seen.insert(at) && seen.len() <= MOST_PIECES, at, || "an object header that goes in circles".into())?;
        let block = source.block(at, length, "a piece of an object header")?;
        let mut cursor = block.cursor();
        while let Some(message) = next(&mut cursor)? {
            match message.kind {
                kind::CONTINUATION => pieces.push(continuation(source, &message)?),
                kind if kind::IGNORED.contains(&kind) => {}
                _ => messages.push(message),
            }
            expect(messages.len() <= MOST_MESSAGES, at, || {
                format!("an object header of more than {MOST_MESSAGES} messages")
            })?;
        }
    }
    Ok(messages)
}

/// The next message of a piece; what is too short for one is a gap.
fn next(cursor: &mut Cursor<'_>) -> Result<Option<Message>, Fault> {
    if cursor.rest().len() < 4 {
        return Ok(None);
    }
    let begin = cursor.at();
    let (kind, length, flags) = (cursor.u8()?, cursor.uint(2)?, cursor.u8()?);
    expect(flags & 0b10 == 0, begin, || "a message that is shared between objects".into())?;
    let at = cursor.at();
    Ok(Some(Message { kind, at, bytes: cursor.take(length)?.to_vec() }))
}

/// Where the messages of the next piece stand: behind its signature, before its checksum.
fn continuation(source: &Source, message: &Message) -> Result<(u64, u64), Fault> {
    let mut cursor = message.cursor();
    let (at, length) = (cursor.present("the next piece of an object header")?, cursor.uint(8)?);
    let mark = source.block(at, 4, "a piece of an object header")?;
    expect(mark.bytes() == b"OCHK", at, || "expected OCHK, the next piece of an object header".into())?;
    let inner = length.checked_sub(8).ok_or_else(|| Fault::layout(at, format!("a piece of {length} bytes")))?;
    Ok((at + 4, inner))
}
