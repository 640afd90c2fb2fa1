//! What a group has: links to groups and arrays, and attributes. Up to eight of each stand in its header, more of them in a heap.

use std::collections::BTreeMap;

use super::attribute::{self, Attribute};
use super::btree::{self, Kind};
use super::cursor::Cursor;
use super::fault::{Fault, expect};
use super::fractal_heap::Heap;
use super::object::{Message, kind};
use super::source::Source;

/// How a tree lists members of a heap.
struct List {
    kind: Kind,
    /// Bytes of a record before the member's id.
    before_id: u64,
    /// Bytes of the id.
    id: u64,
}

/// Links by their names: a hash, then the id.
const LINKS: List = List { kind: Kind { number: 5, record: 11 }, before_id: 4, id: 7 };

/// Attributes by their names: the id, then flags, order and a hash.
const ATTRIBUTES: List = List { kind: Kind { number: 8, record: 17 }, before_id: 0, id: 8 };

/// The parts of a group.
pub(super) struct Members {
    /// Addresses of groups and arrays.
    pub(super) links: BTreeMap<String, u64>,
    /// Attributes.
    pub(super) attributes: BTreeMap<String, Attribute>,
}

/// Those of the group at `address` with these messages.
pub(super) fn read(source: &Source, address: u64, messages: &[Message]) -> Result<Members, Fault> {
    let mut members = Members { links: BTreeMap::new(), attributes: BTreeMap::new() };
    let is_group = messages.iter().any(|message| message.kind == kind::LINK_INFO);
    let old = messages.iter().any(|message| message.kind == kind::SYMBOL_TABLE);
    expect(!old, address, || "a group as HDF5 before 1.8 lays it out".into())?;
    expect(is_group, address, || "expected a group, got an array".into())?;
    for message in messages {
        let cursor = message.cursor();
        source.part(cursor.at())?;
        match message.kind {
            kind::LINK => members.link(cursor)?,
            kind::LINK_INFO => dense(source, cursor, &LINKS, &mut |cursor| members.link(cursor))?,
            kind::ATTRIBUTE => members.attribute(cursor)?,
            kind::ATTRIBUTE_INFO => dense(source, cursor, &ATTRIBUTES, &mut |cursor| members.attribute(cursor))?,
            other => {
                return Err(Fault::layout(cursor.at(), format!("a group with a message of the unknown kind {other}")));
            }
        }
    }
    Ok(members)
}

impl Members {
    fn link(&mut self, mut cursor: Cursor<'_>) -> Result<(), Fault> {
        let begin = cursor.at();
        cursor.exactly(1, 1, "version of a link")?;
        let flags = cursor.u8()?;
        // bit 2: order of creation, never written; 3: kind, 0 for a hard link; 4: character set of the name
        expect(flags & !0b1_1011 == 0, begin, || format!("flags {flags:#x} of a link"))?;
        if flags & 0b1000 != 0 {
            let (at, kind) = (cursor.at(), cursor.u8()?);
            expect(kind == 0, at, || "a link to a name or to another file, which trireme never follows".into())?;
        }
        if flags & 0b1_0000 != 0 {
            cursor.u8()?;
        }
        let length = cursor.uint(1 << (flags & 0b11))?;
        let name = cursor.text(length)?;
        let at = cursor.at();
        let address = cursor.present("what a link names")?;
        let text = format!("two links {name}");
        expect(self.links.insert(name, address).is_none(), at, || text)
    }

    fn attribute(&mut self, cursor: Cursor<'_>) -> Result<(), Fault> {
        let at = cursor.at();
        let (name, attribute) = attribute::parse(cursor)?;
        let text = format!("two attributes {name}");
        expect(self.attributes.insert(name, attribute).is_none(), at, || text)
    }
}

/// Calls `each` with all members of the heap that an info message tells of, if there is one.
fn dense(
    source: &Source,
    mut info: Cursor<'_>,
    list: &List,
    each: &mut dyn FnMut(Cursor<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    info.exactly(0, 1, "version of a list of members")?;
    // others tell of the order of creation, which is never written
    info.exactly(0, 1, "flags of a list of members")?;
    let (heap, tree) = (info.address()?, info.address()?);
    let Some((heap, tree)) = heap.zip(tree) else { return Ok(()) };
    let heap = Heap::open(source, heap, list.id)?;
    for record in btree::records(source, tree, list.kind)?.chunks_exact(list.kind.record as usize) {
        source.part(tree)?;
        let mut record = Cursor::new(tree, record);
        record.take(list.before_id)?;
        each(heap.object(record.take(list.id)?)?.cursor())?;
    }
    Ok(())
}
