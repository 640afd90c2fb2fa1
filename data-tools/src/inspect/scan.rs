//! One pass over a whole shard that stops at the first fault: record positions, labels, class
//! names, pixel sums.

use crate::error::Error;
use crate::image::moments::Moments;
use crate::image::pixels::Pixels;
use crate::inspect::walk::Walk;
use crate::progress::Counter;
use loaders::example;
use std::collections::BTreeMap;
use std::path::Path;

/// What a shard holds.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// Offset and size with framing of each record.
    pub entries: Vec<(u64, u64)>,
    /// Bytes of the shard.
    pub bytes: u64,
    /// Every label as stored.
    pub labels: BTreeMap<i64, Seen>,
    /// Sums over the pixels, if asked for.
    pub moments: Moments,
}

/// What is known of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Records with it.
    pub count: u64,
    /// Number of the first of them in its shard.
    pub record: u64,
    /// Where that starts.
    pub offset: u64,
    /// The first class name that is not empty, else empty.
    pub text: String,
}

/// Scans the shard at `path`; decodes images only if `pixels`.
pub(crate) fn scan(path: &Path, pixels: bool, counter: &mut Counter<'_>) -> Result<Scanned, Error> {
    let mut walk = Walk::open(path)?;
    let mut scanned = Scanned { bytes: walk.len(), ..Scanned::default() };
    let mut decoder = Pixels::default();
    while let Some(found) = walk.step()? {
        let (record, offset) = (found.number, found.offset);
        let failed = |what: String| Error::Record { shard: path.to_path_buf(), record, offset, what };
        let payload = found.payload.map_err(|e| failed(e.to_string()))?;
        let example = example::parse(payload).map_err(|e| failed(e.to_string()))?;
        if pixels {
            decoder.measure(&example, &mut scanned.moments).map_err(failed)?;
        }
        scanned.entries.push((offset, found.size));
        let seen = scanned.labels.entry(example.label).or_insert_with(|| Seen {
            count: 0,
            record,
            offset,
            text: String::new(),
        });
        seen.count += 1;
        if seen.text.is_empty() {
            seen.text.push_str(example.text);
        }
        counter.tick();
    }
    Ok(scanned)
}
