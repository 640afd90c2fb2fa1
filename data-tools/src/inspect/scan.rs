//! One pass over a whole shard that stops at the first fault: record positions, labels, class names, pixel sums.

use super::walk::{Position, Walk};
use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::progress::Counter;
use loaders::{Example, example};
use std::collections::BTreeMap;
use std::path::Path;

/// The most classes of a shard.
const MOST_LABELS: usize = 1 << 20;

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
    /// The record count.
    pub count: u64,
    /// The name in the first record that has a name.
    pub name: Option<Named>,
    /// The first name that differs from `name`.
    pub other: Option<Named>,
}

/// The name that a record assigns to its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub at: Position,
    /// The `image/class/text` feature.
    pub text: String,
    /// The `image/class/synset` feature, or an empty string.
    pub synset: String,
}

impl Named {
    /// Compares the WordNet ids if both are set, otherwise the names. An empty name matches any name.
    pub(super) fn is_same(&self, text: &str, synset: &str) -> bool {
        match self.synset.is_empty() || synset.is_empty() {
            true => self.text.is_empty() || text.is_empty() || self.text == text,
            false => self.synset == synset,
        }
    }
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
        scanned.see(&example, example::synset(payload).unwrap_or(""), found.at);
        if scanned.labels.len() > MOST_LABELS {
            return Err(failed(format!(
                "the shard has more than {MOST_LABELS} different labels; expected class numbers"
            )));
        }
        counter.tick();
    }
    Ok(scanned)
}

impl Scanned {
    fn see(&mut self, example: &Example<'_>, synset: &str, at: Position) {
        if example.labels.is_list() {
            self.several.get_or_insert(at);
            return;
        }
        let new = || Seen { first: at, count: 0, name: None, other: None };
        let seen = self.labels.entry(example.label).or_insert_with(new);
        seen.count += 1;
        let named = || Named { at, text: example.text.to_string(), synset: synset.to_string() };
        match &seen.name {
            _ if example.text.is_empty() && synset.is_empty() => {}
            None => seen.name = Some(named()),
            Some(name) if !name.is_same(example.text, synset) => drop(seen.other.get_or_insert_with(named)),
            Some(_) => {}
        }
    }
}
