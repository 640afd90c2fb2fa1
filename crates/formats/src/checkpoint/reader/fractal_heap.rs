//! Fractal heaps, where HDF5 keeps the links and attributes of a group that has more than eight of them.

use std::collections::BTreeMap;

use super::btree::{self, Kind};
use super::cursor::Cursor;
use super::fault::{Fault, expect};
use super::source::{Block, Source};

/// The tree of objects that are too long for the heap's blocks: address, length and number of each.
const HUGE: Kind = Kind { number: 1, record: 24 };

/// An indirect block before its entries: signature, version, address of the heap; the block's offset comes then.
const BEFORE_OFFSET: u64 = 13;

/// Levels of indirect blocks at most.
const MOST_LEVELS: usize = 8;

/// A child of an indirect block.
struct Child {
    row: u64,
    column: u64,
    /// Bytes that it spans.
    size: u64,
    /// An offset in it.
    inside: u64,
}

fn huge_objects(source: &Source, tree: u64) -> Result<BTreeMap<u64, (u64, u64)>, Fault> {
    let mut objects = BTreeMap::new();
    for record in btree::records(source, tree, HUGE)?.chunks_exact(HUGE.record as usize) {
        source.part(tree)?;
        let mut cursor = Cursor::new(tree, record);
        let place = (cursor.uint(8)?, cursor.uint(8)?);
        objects.insert(cursor.uint(8)?, place);
    }
    Ok(objects)
}

/// An open heap.
pub(super) struct Heap<'a> {
    source: &'a Source,
    at: u64,
    /// Bytes of an object's offset in its id.
    offset_bytes: u64,
    /// Bytes of its length there.
    length_bytes: u64,
    width: u64,
    first: u64,
    largest: u64,
    root: Option<u64>,
    /// Rows of the root; 0: the root is a block of objects.
    rows: u64,
    /// Offsets in the file and lengths of huge objects, by their numbers.
    huge: BTreeMap<u64, (u64, u64)>,
}

impl<'a> Heap<'a> {
    /// Opens the heap at `at`, whose ids have `id` bytes.
    pub(super) fn open(source: &'a Source, at: u64, id: u64) -> Result<Self, Fault> {
        let header = source.block(at, 142, "a heap")?;
        let mut cursor = header.cursor();
        cursor.signature(b"FRHP", 0)?;
        cursor.exactly(id, 2, "bytes of a heap's ids")?;
        cursor.exactly(0, 2, "filters of a heap")?;
        cursor.u8()?;
        let most = cursor.uint(4)?;
        cursor.take(8)?;
        let huge = cursor.address()?;
        // sizes, counts and free space
        cursor.take(10 * 8)?;
        let (width, first, largest) = (cursor.uint(2)?, cursor.uint(8)?, cursor.uint(8)?);
        let (bits, _, root, rows) = (cursor.uint(2)?, cursor.uint(2)?, cursor.address()?, cursor.uint(2)?);
        let sizes = [width, first, largest].iter().all(|size| size.is_power_of_two());
        let sound =
            sizes && first <= largest && largest <= 1 << 32 && width <= 1 << 10 && bits <= 64 && most <= largest;
        expect(sound, at, || {
            format!(
                "a heap of {width} blocks a row, {first} to {largest} bytes each, objects up to {most}, {bits} bits"
            )
        })?;
        let bytes = |most: u64| u64::from(most.max(1).ilog2()) / 8 + 1;
        let length_bytes = bytes(most).min(u64::from(largest.ilog2()).div_ceil(8));
        let huge = huge.map_or(Ok(BTreeMap::new()), |tree| huge_objects(source, tree))?;
        Ok(Self { source, at, offset_bytes: bits.div_ceil(8), length_bytes, width, first, largest, root, rows, huge })
    }

    /// The object of an id.
    pub(super) fn object(&self, id: &[u8]) -> Result<Block, Fault> {
        let mut cursor = Cursor::new(self.at, id);
        match cursor.u8()? {
            0x00 => {
                let (offset, length) = (cursor.uint(self.offset_bytes)?, cursor.uint(self.length_bytes)?);
                let at = self.locate(offset, length)?;
                self.source.block(at, length, "an object in a heap")
            }
            0x10 => self.huge(cursor.uint(cursor.rest().len() as u64)?),
            other => Err(Fault::layout(self.at, format!("an object in a heap of the unknown kind {other}"))),
        }
    }

    fn huge(&self, number: u64) -> Result<Block, Fault> {
        let found = self.huge.get(&number);
        let &(at, length) =
            found.ok_or_else(|| Fault::layout(self.at, format!("no huge object {number} in the heap")))?;
        self.source.block(at, length, "a huge object of a heap")
    }

    /// Where in the file an object begins.
    fn locate(&self, offset: u64, length: u64) -> Result<u64, Fault> {
        let outside = || Fault::layout(self.at, format!("no block of the heap has {length} bytes at {offset}"));
        let mut block = self.root.ok_or_else(outside)?;
        let (mut rows, mut size, mut inside) = (self.rows, self.first, offset);
        for _ in 0..MOST_LEVELS {
            if rows == 0 {
                let end = inside.checked_add(length).filter(|&end| end <= size);
                return end.and_then(|_| block.checked_add(inside)).ok_or_else(outside);
            }
            let child = self.covering(inside);
            if child.row >= rows {
                return Err(outside());
            }
            block = self.child(block, child.row * self.width + child.column)?;
            (size, inside) = (child.size, child.inside);
            // a child that is no block of objects has as many rows as it takes to span its size
            let first_row = self.first * self.width;
            rows = if size <= self.largest { 0 } else { u64::from((size / first_row).max(1).ilog2()) + 1 };
        }
        Err(outside())
    }

    /// The child of an indirect block that an offset in it falls into. From the third row on children double in size.
    fn covering(&self, offset: u64) -> Child {
        let first_row = self.first * self.width;
        let row = if offset < first_row { 0 } else { u64::from((offset / first_row).ilog2()) + 1 };
        let (size, start) = match row {
            0 => (self.first, 0),
            _ => (self.first << (row - 1), first_row << (row - 1)),
        };
        let column = (offset - start) / size;
        Child { row, column, size, inside: offset - start - column * size }
    }

    /// An entry of an indirect block.
    fn child(&self, block: u64, entry: u64) -> Result<u64, Fault> {
        self.source.block(block, 5, "a block of a heap")?.cursor().signature(b"FHIB", 0)?;
        let at = block.checked_add(BEFORE_OFFSET + self.offset_bytes + 8 * entry);
        let at = at.ok_or_else(|| Fault::layout(block, "a block of a heap beyond the end of the file"))?;
        self.source.block(at, 8, "an entry of a heap's block")?.cursor().present("a block of a heap")
    }
}
