//! Global heaps, where HDF5 keeps texts: collections of numbered objects.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::cursor::Cursor;
use super::fault::{Fault, expect};
use super::source::Source;

/// Bytes of a reference to a text: its length, the collection's address, the object's number.
pub(super) const REFERENCE: u64 = 16;

/// Bytes of the header of a collection, and of an object in it.
const HEADER: u64 = 16;

/// Offset in the file and length of each object of a collection.
type Objects = BTreeMap<u64, (u64, u64)>;

/// The collections that were needed so far.
#[derive(Default)]
pub(super) struct GlobalHeap {
    collections: RefCell<BTreeMap<u64, Collection>>,
}

struct Collection {
    end: u64,
    objects: Objects,
}

impl GlobalHeap {
    /// The text that the next 16 bytes refer to.
    pub(super) fn text(&self, source: &Source, cursor: &mut Cursor<'_>) -> Result<String, Fault> {
        let at = cursor.at();
        source.part(at)?;
        let (length, collection, number) = (cursor.uint(4)?, cursor.uint(8)?, cursor.uint(4)?);
        if length == 0 {
            return Ok(String::new());
        }
        if !self.collections.borrow().contains_key(&collection) {
            self.open(source, collection)?;
        }
        let collections = self.collections.borrow();
        let found = collections.get(&collection).and_then(|c| c.objects.get(&number));
        let place = found.filter(|(_, have)| length <= *have);
        let &(place, _) = place.ok_or_else(|| {
            Fault::layout(at, format!("no text {number} of {length} bytes in the collection at {collection}"))
        })?;
        source.hand_out(length, at)?;
        source.block(place, length, "a text")?.cursor().text(length)
    }

    /// Lists the objects of a collection. Collections that overlap would make a small file a large table.
    fn open(&self, source: &Source, at: u64) -> Result<(), Fault> {
        let header = source.block(at, HEADER, "a collection of texts")?;
        let mut cursor = header.cursor();
        cursor.signature(b"GCOL", 1)?;
        cursor.take(3)?;
        let length = cursor.uint(8)?;
        let mut collections = self.collections.borrow_mut();
        let block = source.block(at, length, "a collection of texts")?;
        let end = at + length;
        let before = collections.range(..end).next_back();
        expect(before.is_none_or(|(_, other)| other.end <= at), at, || "collections of texts that overlap".into())?;
        collections.insert(at, Collection { end, objects: objects(source, block.cursor())? });
        Ok(())
    }
}

fn objects(source: &Source, mut cursor: Cursor<'_>) -> Result<Objects, Fault> {
    cursor.take(HEADER)?;
    let mut objects = Objects::new();
    while cursor.rest().len() as u64 >= HEADER {
        let at = cursor.at();
        let (number, _, _, length) = (cursor.uint(2)?, cursor.uint(2)?, cursor.uint(4)?, cursor.uint(8)?);
        if number == 0 {
            // free space up to the end
            break;
        }
        source.part(at)?;
        let place = cursor.at();
        let padded = length.checked_next_multiple_of(8);
        cursor.take(padded.ok_or_else(|| Fault::layout(at, format!("a text of {length} bytes")))?)?;
        expect(objects.insert(number, (place, length)).is_none(), at, || format!("two texts {number}"))?;
    }
    Ok(objects)
}
