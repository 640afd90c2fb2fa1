//! The index of a shard, read without trust: its entries may differ from the shard.

use super::walk::Position;
use loaders::record::OVERHEAD;
use loaders::regular;
use loaders::shard::index_path;
use std::io;
use std::path::Path;

/// Offset and size with framing of each record, as the index has them.
pub(super) struct ShardIndex(Vec<(u64, u64)>);

impl ShardIndex {
    /// Reads the index of `shard`; the error completes "its index ...".
    pub fn read(shard: &Path) -> Result<Self, String> {
        let most = shard.metadata().map_or(0, |meta| meta.len() / OVERHEAD);
        match regular::read_to_string(&index_path(shard)) {
            Ok(text) => parse(&text, most).map(ShardIndex).map_err(|line| format!("line {line} is not `offset size`")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err("is missing".to_string()),
            Err(e) => Err(format!("cannot be read: {e}")),
        }
    }

    /// The first record behind `offset` that starts inside a shard of `length` bytes.
    pub fn next(&self, offset: u64, length: u64) -> Option<Position> {
        let record = self.0.iter().position(|entry| entry.0 > offset && entry.0 < length)?;
        Some(Position { record: record as u64, offset: self.0[record].0 })
    }

    /// Whether a record at `offset` ends a shard of `length` bytes.
    pub fn is_last(&self, offset: u64, length: u64) -> bool {
        self.0.iter().any(|entry| entry.0 == offset && entry.0.checked_add(entry.1) == Some(length))
    }

    /// How the index differs from the records of the shard, if it does.
    pub fn difference(&self, records: &[(u64, u64)]) -> Option<String> {
        if self.0 == records {
            return None;
        }
        let same = self.0.iter().zip(records).take_while(|(a, b)| a == b).count();
        let words = |list: &[(u64, u64)]| match list.get(same) {
            Some((offset, size)) => format!("{size} bytes at {offset}"),
            None => "no more records".to_string(),
        };
        Some(format!(
            "its index is wrong from record {same} on: it says {}, the shard has {}; run `trireme data index`",
            words(&self.0),
            words(records)
        ))
    }
}

/// The first entries of an index and one more, or the number of the first malformed line. A short shard has few records, however many lines
/// its index has.
fn parse(text: &str, first: u64) -> Result<Vec<(u64, u64)>, usize> {
    let entry = |line: &str| {
        let (offset, size) = line.split_once(' ')?;
        Some((offset.parse().ok()?, size.parse().ok()?))
    };
    let lines = text.lines().take(usize::try_from(first).unwrap_or(usize::MAX).saturating_add(1));
    lines.enumerate().map(|(i, line)| entry(line).ok_or(i + 1)).collect()
}
