//! One pass over a whole shard that stops at the first fault: record positions, labels, class names, pixel sums.

use super::walk::{Position, Walk};
use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::progress::Counter;
use loaders::{Example, example};
use std::collections::BTreeMap;
use std::path::Path;

/// What a shard holds.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// Offset and size with framing of each record.
    pub entries: Vec<(u64, u64)>,
    /// Bytes of the shard.
    pub bytes: u64,
    /// Every stored label.
    pub labels: BTreeMap<i64, Seen>,
    /// The first record of none or several labels.
    pub several: Option<Position>,
    /// Sums over the pixels, if they were measured.
    pub moments: Moments,
}

/// What the records of one label say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first of them.
    pub first: Position,
    /// The first class name that is not empty, else empty.
    pub text: String,
}

/// Scans the shard at `path`; decodes and measures the images if `pixels`.
pub(super) fn scan(path: &Path, pixels: bool, counter: &mut Counter<'_>) -> Result<Scanned, Error> {
    let mut walk = Walk::open(path)?;
    let mut scanned = Scanned { bytes: walk.length(), ..Scanned::default() };
    let mut decoder = Pixels::default();
    while let Some(found) = walk.step()? {
        let Position { record, offset } = found.at;
        let failed = |what: String| Error::Record { shard: path.to_path_buf(), record, offset, what };
        let payload = found.payload.map_err(|e| failed(e.to_string()))?;
        let example = example::parse(payload).map_err(|e| failed(e.to_string()))?;
        if pixels {
            decoder.measure(&example, &mut scanned.moments).map_err(failed)?;
        }
        scanned.entries.push((offset, found.size));
        scanned.see(&example, found.at);
        counter.tick();
    }
    Ok(scanned)
}

impl Scanned {
    fn see(&mut self, example: &Example<'_>, first: Position) {
        if example.labels.is_list() {
            self.several.get_or_insert(first);
            return;
        }
        let seen = self.labels.entry(example.label).or_insert_with(|| Seen { first, text: String::new() });
        if seen.text.is_empty() {
            seen.text.push_str(example.text);
        }
    }
}
