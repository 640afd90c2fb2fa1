//! Parses heaps. If a group has more than eight links or attributes, HDF5 stores them in a fractal heap and lists them
//! in a B-tree. Strings are stored in global heaps.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::source::{Block, Cursor, Fault, Source, expect};

/// The B-tree of objects that do not fit into the blocks of the heap. A record consists of address, length and number
/// of an object.
const HUGE: TreeType = TreeType { number: 1, record: 24 };

/// Bytes before the offset field in an indirect block: signature, version, heap address.
const BEFORE_OFFSET: u64 = 13;

/// Maximum depth of indirect blocks.
const MAX_DEPTH: usize = 8;

/// The child of an indirect block that contains a certain position.
struct Child {
    row: u64,
    column: u64,
    /// Size of the child in bytes.
    size: u64,
    /// Offset of the position from the start of the child.
    inside: u64,
}

fn huge_objects(source: &Source, tree: u64) -> Result<BTreeMap<u64, (u64, u64)>, Fault> {
    let mut objects = BTreeMap::new();
    for record in records(source, tree, HUGE)?.chunks_exact(HUGE.record as usize) {
        source.count_part(tree)?;
        let mut cursor = Cursor::new(tree, record);
        let place = (cursor.uint(8)?, cursor.uint(8)?);
        objects.insert(cursor.uint(8)?, place);
    }
    Ok(objects)
}

pub(super) struct Heap<'a> {
    source: &'a Source,
    at: u64,
    /// Length of the offset field in an id, in bytes.
    offset_bytes: u64,
    /// Length of the length field in an id, in bytes.
    length_bytes: u64,
    width: u64,
    first: u64,
    largest: u64,
    root: Option<u64>,
    /// Number of rows of the root. 0 if the root is a direct block.
    rows: u64,
    /// Offset in the file and length of each huge object, by number.
    huge: BTreeMap<u64, (u64, u64)>,
}

impl<'a> Heap<'a> {
    /// Opens the heap at offset `at`. Its ids have `id` bytes.
    pub(super) fn open(source: &'a Source, at: u64, id: u64) -> Result<Self, Fault> {
        let header = source.block(at, 142, "a heap")?;
        let mut cursor = header.cursor();
        cursor.signature(b"FRHP", 0)?;
        cursor.exactly(id, 2, "heap id length")?;
        cursor.exactly(0, 2, "heap filters")?;
        cursor.u8()?;
        let most = cursor.uint(4)?;
        cursor.take(8)?;
        let huge = cursor.address()?;
        // Skips sizes, counts and free space.
        cursor.take(10 * 8)?;
        let (width, first, largest) = (cursor.uint(2)?, cursor.uint(8)?, cursor.uint(8)?);
        let (bits, _, root, rows) = (cursor.uint(2)?, cursor.uint(2)?, cursor.address()?, cursor.uint(2)?);
        let sizes = [width, first, largest].iter().all(|size| size.is_power_of_two());
        let sound =
            sizes && first <= largest && largest <= 1 << 32 && width <= 1 << 10 && bits <= 64 && most <= largest;
        expect(sound, at, || {
            format!(
                "a heap with {width} blocks per row, blocks of {first} to {largest} bytes, objects of up to {most} bytes, and offsets of \
                 {bits} bits. Expected powers of two for the first three numbers, up to 1024 blocks per row, the first size not above \
                 the second, blocks of up to 4 GiB, objects that fit into a block, and offsets of up to 64 bits"
            )
        })?;
        let bytes = |most: u64| u64::from(most.max(1).ilog2()) / 8 + 1;
        let length_bytes = bytes(most).min(u64::from(largest.ilog2()).div_ceil(8));
        let huge = huge.map_or(Ok(BTreeMap::new()), |tree| huge_objects(source, tree))?;
        Ok(Self { source, at, offset_bytes: bits.div_ceil(8), length_bytes, width, first, largest, root, rows, huge })
    }

    /// Returns the object with this id.
    pub(super) fn object(&self, id: &[u8]) -> Result<Block, Fault> {
        let mut cursor = Cursor::new(self.at, id);
        match cursor.u8()? {
            0x00 => {
                let (offset, length) = (cursor.uint(self.offset_bytes)?, cursor.uint(self.length_bytes)?);
                let at = self.locate(offset, length)?;
                self.source.block(at, length, "a heap object")
            }
            0x10 => self.huge(cursor.uint(cursor.rest().len() as u64)?),
            other => Err(Fault::layout(self.at, format!("a heap object of the unknown kind {other}"))),
        }
    }

    fn huge(&self, number: u64) -> Result<Block, Fault> {
        let found = self.huge.get(&number);
        let &(at, length) =
            found.ok_or_else(|| Fault::layout(self.at, format!("no huge object {number} in the heap")))?;
        self.source.block(at, length, "a huge heap object")
    }

    /// Returns the offset of an object in the file.
    fn locate(&self, offset: u64, length: u64) -> Result<u64, Fault> {
        let outside = || Fault::layout(self.at, format!("no block of the heap has {length} bytes at {offset}"));
        let mut block = self.root.ok_or_else(outside)?;
        let (mut rows, mut size, mut inside) = (self.rows, self.first, offset);
        for _ in 0..MAX_DEPTH {
            if rows == 0 {
                let end = inside.checked_add(length).filter(|&end| end <= size);
                return end.and_then(|_| block.checked_add(inside)).ok_or_else(outside);
            }
            let child = self.child_at(inside);
            if child.row >= rows {
                return Err(outside());
            }
            block = self.child(block, child.row * self.width + child.column)?;
            (size, inside) = (child.size, child.inside);
            // A child that is an indirect block has as many rows as it needs to span its size.
            let first_row = self.first * self.width;
            rows = if size <= self.largest { 0 } else { u64::from((size / first_row).max(1).ilog2()) + 1 };
        }
        Err(outside())
    }

    /// Returns the child of an indirect block that contains this offset. From the third row on, the size of the
    /// children doubles with each row.
    fn child_at(&self, offset: u64) -> Child {
        let first_row = self.first * self.width;
        let row = if offset < first_row { 0 } else { u64::from((offset / first_row).ilog2()) + 1 };
        let (size, start) = match row {
            0 => (self.first, 0),
            _ => (self.first << (row - 1), first_row << (row - 1)),
        };
        let column = (offset - start) / size;
        Child { row, column, size, inside: offset - start - column * size }
    }

    /// Returns the address in an entry of an indirect block.
    fn child(&self, block: u64, entry: u64) -> Result<u64, Fault> {
        self.source.block(block, 5, "a heap block")?.cursor().signature(b"FHIB", 0)?;
        let at = block.checked_add(BEFORE_OFFSET + self.offset_bytes + 8 * entry);
        let at = at.ok_or_else(|| Fault::layout(block, "a heap block beyond the end of the file"))?;
        self.source.block(at, 8, "a heap block entry")?.cursor().present("a heap block")
    }
}

/// Bytes of a node that do not belong to records: signature, version, type, checksum.
const NODE_OVERHEAD: u64 = 10;

/// Maximum depth of a B-tree. Nodes have dozens of children, so the trees in valid files are less deep.
const MAX_TREE_DEPTH: u64 = 8;

/// A type of B-tree, which determines what its records contain.
#[derive(Clone, Copy)]
pub(super) struct TreeType {
    /// HDF5's number of the type.
    pub(super) number: u8,
    /// Bytes per record.
    pub(super) record: u64,
}

struct Tree<'a> {
    source: &'a Source,
    kind: TreeType,
    node: u64,
    /// For each level, starting with the leaves: the width in bytes of two fields, the number of records in a child,
    /// and the total number of records below it.
    widths: Vec<(u64, u64)>,
    total: u64,
    seen: BTreeSet<u64>,
    records: Vec<u8>,
}

/// Returns all records of the tree at `address`, concatenated.
pub(super) fn records(source: &Source, address: u64, kind: TreeType) -> Result<Vec<u8>, Fault> {
    let header = source.block(address, 34, "a B-tree")?;
    let mut cursor = header.cursor();
    cursor.signature(b"BTHD", 0)?;
    cursor.exactly(u64::from(kind.number), 1, "B-tree type")?;
    let node = cursor.uint(4)?;
    expect((64..=65536).contains(&node), address, || format!("B-tree nodes with {node} bytes"))?;
    cursor.exactly(kind.record, 2, "record length")?;
    let depth = cursor.uint(2)?;
    expect(depth < MAX_TREE_DEPTH, address, || format!("a B-tree with {depth} levels"))?;
    cursor.take(2)?;
    let (root, count, total) = (cursor.address()?, cursor.uint(2)?, cursor.uint(8)?);
    let fits = total.checked_mul(kind.record).is_some_and(|bytes| bytes <= source.length());
    expect(fits, address, || format!("a B-tree with {total} records"))?;
    let widths = widths(node, kind.record, depth);
    let mut tree = Tree { source, kind, node, widths, total, seen: BTreeSet::new(), records: Vec::new() };
    if let Some(root) = root {
        tree.visit(root, count, depth)?;
    }
    let got = tree.records.len() as u64 / kind.record;
    expect(got == total, address, || format!("a B-tree should have {total} records, but has {got}"))?;
    Ok(tree.records)
}

/// Computes [`Tree::widths`]. HDF5 uses as few bytes as the largest possible value of a field needs.
fn widths(node: u64, record: u64, depth: u64) -> Vec<(u64, u64)> {
    let bytes = |most: u64| u64::from(most.max(1).ilog2()) / 8 + 1;
    let leaf = (node - NODE_OVERHEAD) / record;
    let (mut most, mut below) = (leaf, 0);
    let mut widths = vec![(0, 0)];
    for _ in 0..depth {
        widths.push((bytes(leaf), below));
        let pointer = 8 + bytes(leaf) + below;
        let own = (node.saturating_sub(NODE_OVERHEAD + pointer)) / (record + pointer);
        most = (own + 1).saturating_mul(most).saturating_add(own);
        below = bytes(most);
    }
    widths
}

impl Tree<'_> {
    fn visit(&mut self, at: u64, count: u64, level: u64) -> Result<(), Fault> {
        expect(self.seen.insert(at), at, || "a B-tree with circular references".into())?;
        let block = self.source.block(at, self.node, "a B-tree node")?;
        let mut cursor = block.cursor();
        cursor.signature(if level == 0 { b"BTLF" } else { b"BTIN" }, 0)?;
        cursor.exactly(u64::from(self.kind.number), 1, "B-tree type")?;
        self.records.extend(cursor.take(count.saturating_mul(self.kind.record))?);
        let got = self.records.len() as u64 / self.kind.record;
        expect(got <= self.total, at, || format!("a B-tree should have {} records, but has more", self.total))?;
        if level == 0 { Ok(()) } else { self.children(cursor, count, level) }
    }

    fn children(&mut self, mut cursor: Cursor<'_>, count: u64, level: u64) -> Result<(), Fault> {
        let (own, below) = self.widths[level as usize];
        for _ in 0..=count {
            let (child, records) = (cursor.present("a B-tree node")?, cursor.uint(own)?);
            cursor.take(below)?;
            self.visit(child, records, level - 1)?;
        }
        Ok(())
    }
}

/// Length of a reference to a string: the string's length, the collection's address, the object's number.
pub(super) const REFERENCE: u64 = 16;

/// Length of a collection's header, and of an object's header in it.
const HEADER: u64 = 16;

/// File offset and length of a collection's objects, by number.
type Objects = BTreeMap<u64, (u64, u64)>;

/// The collections that were read so far.
#[derive(Default)]
pub(super) struct GlobalHeap {
    collections: RefCell<BTreeMap<u64, Collection>>,
}

struct Collection {
    end: u64,
    objects: Objects,
}

impl GlobalHeap {
    /// Reads the string that the next 16 bytes refer to.
    pub(super) fn text(&self, source: &Source, cursor: &mut Cursor<'_>) -> Result<String, Fault> {
        let at = cursor.at();
        source.count_part(at)?;
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
            Fault::layout(at, format!("no string {number} of {length} bytes in the collection at {collection}"))
        })?;
        source.count_value_bytes(length, at)?;
        source.block(place, length, "a text")?.cursor().text(length)
    }

    /// Lists the objects of a collection. Overlapping collections are rejected, because they would let a small file
    /// create a large table.
    fn open(&self, source: &Source, at: u64) -> Result<(), Fault> {
        let header = source.block(at, HEADER, "a collection of strings")?;
        let mut cursor = header.cursor();
        cursor.signature(b"GCOL", 1)?;
        cursor.take(3)?;
        let length = cursor.uint(8)?;
        let mut collections = self.collections.borrow_mut();
        let block = source.block(at, length, "a collection of strings")?;
        let end = at + length;
        let before = collections.range(..end).next_back();
        expect(before.is_none_or(|(_, other)| other.end <= at), at, || "collections of strings that overlap".into())?;
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
            // The rest of the collection is free space.
            break;
        }
        source.count_part(at)?;
        let place = cursor.at();
        let padded = length.checked_next_multiple_of(8);
        cursor.take(padded.ok_or_else(|| Fault::layout(at, format!("a string of {length} bytes")))?)?;
        expect(objects.insert(number, (place, length)).is_none(), at, || format!("two strings {number}"))?;
    }
    Ok(objects)
}
