//! B-trees of version 2, which list the members of a fractal heap. All records are read; the order, by hashes of names, is of no use.

use std::collections::BTreeSet;

use super::cursor::Cursor;
use super::fault::{Fault, expect};
use super::source::Source;

/// Bytes of a node that are no records: signature, version, type, checksum.
const FRAME: u64 = 10;

/// Levels at most; a node has dozens of children.
const MOST_LEVELS: u64 = 8;

/// What a tree lists.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// HDF5's number of it.
    pub(super) number: u8,
    /// Bytes of a record.
    pub(super) record: u64,
}

struct Tree<'a> {
    source: &'a Source,
    kind: Kind,
    node: u64,
    /// For each level, from the leaves up: bytes of a child's number of records, and of all below it.
    widths: Vec<(u64, u64)>,
    total: u64,
    seen: BTreeSet<u64>,
    records: Vec<u8>,
}

/// All records of the tree at `address`, one after another.
pub(super) fn records(source: &Source, address: u64, kind: Kind) -> Result<Vec<u8>, Fault> {
    let header = source.block(address, 34, "a B-tree")?;
    let mut cursor = header.cursor();
    cursor.signature(b"BTHD", 0)?;
    cursor.exactly(u64::from(kind.number), 1, "kind of B-tree")?;
    let node = cursor.uint(4)?;
    expect((64..=65536).contains(&node), address, || format!("nodes of a B-tree of {node} bytes"))?;
    cursor.exactly(kind.record, 2, "bytes of a record")?;
    let depth = cursor.uint(2)?;
    expect(depth < MOST_LEVELS, address, || format!("a B-tree of {depth} levels"))?;
    cursor.take(2)?;
    let (root, count, total) = (cursor.address()?, cursor.uint(2)?, cursor.uint(8)?);
    let fits = total.checked_mul(kind.record).is_some_and(|bytes| bytes <= source.length());
    expect(fits, address, || format!("a B-tree of {total} records"))?;
    let widths = widths(node, kind.record, depth);
    let mut tree = Tree { source, kind, node, widths, total, seen: BTreeSet::new(), records: Vec::new() };
    if let Some(root) = root {
        tree.visit(root, count, depth)?;
    }
    let got = tree.records.len() as u64 / kind.record;
    expect(got == total, address, || format!("a B-tree of {total} records holds {got}"))?;
    Ok(tree.records)
}

/// See [`Tree::widths`]. HDF5 takes as few bytes as the largest possible number needs.
fn widths(node: u64, record: u64, depth: u64) -> Vec<(u64, u64)> {
    let bytes = |most: u64| u64::from(most.max(1).ilog2()) / 8 + 1;
    let leaf = (node - FRAME) / record;
    let (mut most, mut below) = (leaf, 0);
    let mut widths = vec![(0, 0)];
    for _ in 0..depth {
        widths.push((bytes(leaf), below));
        let pointer = 8 + bytes(leaf) + below;
        let own = (node.saturating_sub(FRAME + pointer)) / (record + pointer);
        most = (own + 1).saturating_mul(most).saturating_add(own);
        below = bytes(most);
    }
    widths
}

impl Tree<'_> {
    fn visit(&mut self, at: u64, count: u64, level: u64) -> Result<(), Fault> {
        expect(self.seen.insert(at), at, || "a B-tree that goes in circles".into())?;
        let block = self.source.block(at, self.node, "a node of a B-tree")?;
        let mut cursor = block.cursor();
        cursor.signature(if level == 0 { b"BTLF" } else { b"BTIN" }, 0)?;
        cursor.exactly(u64::from(self.kind.number), 1, "kind of B-tree")?;
        self.records.extend(cursor.take(count.saturating_mul(self.kind.record))?);
        let got = self.records.len() as u64 / self.kind.record;
        expect(got <= self.total, at, || format!("a B-tree of {} records holds more", self.total))?;
        if level == 0 { Ok(()) } else { self.children(cursor, count, level) }
    }

    fn children(&mut self, mut cursor: Cursor<'_>, count: u64, level: u64) -> Result<(), Fault> {
        let (own, below) = self.widths[level as usize];
        for _ in 0..=count {
            let (child, records) = (cursor.present("a node of a B-tree")?, cursor.uint(own)?);
            cursor.take(below)?;
            self.visit(child, records, level - 1)?;
        }
        Ok(())
    }
}
