//! Facts that a conversion gathers about the samples that it writes: pixel sums, sizes, and the samples left out.

use crate::error::Error;
use crate::image::moments::Moments;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Facts about some samples; adding two of them is exact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Sums over the pixels of the images that were measured.
    pub moments: Moments,
    /// Images measured.
    pub measured: u64,
    /// Least height and width, greatest height and width.
    pub sizes: Option<[[u32; 2]; 2]>,
    /// Images that have entry points.
    #[serde(default)]
    pub entry_points: u64,
    /// What tells whether their files have changed since: a sum, see `stamps`.
    #[serde(default)]
    pub stamps: u64,
    /// A line for each sample that was left out.
    pub skipped: Vec<String>,
}

impl Tally {
    /// Notes the size of an image.
    pub(super) fn see(&mut self, height: u32, width: u32) {
        self.widen([[height, width]; 2]);
    }

    fn widen(&mut self, [[h0, w0], [h1, w1]]: [[u32; 2]; 2]) {
        let [[a, b], [c, d]] = self.sizes.unwrap_or([[h0, w0], [h1, w1]]);
        self.sizes = Some([[a.min(h0), b.min(w0)], [c.max(h1), d.max(w1)]]);
    }

    /// Adds the facts about further samples of the shard `shard`.
    pub(super) fn merge(&mut self, other: Tally, shard: &Path) -> Result<(), Error> {
        self.moments.merge_shard(&other.moments, shard)?;
        self.measured += other.measured;
        self.entry_points += other.entry_points;
        self.stamps = self.stamps.wrapping_add(other.stamps);
        if let Some(sizes) = other.sizes {
            self.widen(sizes);
        }
        self.skipped.extend(other.skipped);
        Ok(())
    }

    /// Height and width, if all images have the same.
    pub(super) fn one_size(&self) -> Option<[u32; 2]> {
        self.sizes.filter(|[least, greatest]| least == greatest).map(|[least, _]| least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_sums_add_up() {
        let (mut all, mut part) = (Tally::default(), Tally::default());
        assert_eq!(all.one_size(), None);
        all.see(4, 5);
        assert_eq!(all.one_size(), Some([4, 5]));
        part.see(4, 5);
        part.see(9, 2);
        part.moments.add(&[1, 2, 3], 3).unwrap();
        (part.measured, part.entry_points, all.entry_points) = (1, 2, 3);
        (part.stamps, all.stamps) = (u64::MAX, 3);
        part.skipped.push("a.jpg: bad".into());
        all.merge(part, Path::new("shard")).unwrap();
        assert_eq!((all.one_size(), all.sizes), (None, Some([[4, 2], [9, 5]])));
        assert_eq!((all.measured, all.entry_points, all.stamps, all.skipped.len()), (1, 5, 2, 1));
        let back: Tally = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(back, all);
    }
}
