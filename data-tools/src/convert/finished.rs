//! A finished shard: its entry in `dataset.json`, and what was learnt of its samples.

use super::tally::Tally;
use crate::error::Error;
use crate::options::OnBad;
use loaders::shard::index_path;
use loaders::{Limits, ShardManifest};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

/// A finished shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Finished {
    /// Its entry in `dataset.json`.
    pub shard: ShardManifest,
    /// Bytes of its index.
    pub index_bytes: u64,
    /// Facts about its samples.
    pub tally: Tally,
    /// The limits that these were read under: bytes, pixels, scans, seconds. Earlier versions have not noted them.
    #[serde(default)]
    pub limits: [f64; 4],
}

impl Finished {
    /// The finished shard in `dir`.
    pub fn new(dir: &Path, shard: ShardManifest, tally: Tally, limits: &Limits) -> Result<Self, Error> {
        let index = index_path(&dir.join(&shard.file));
        let index_bytes = size(&index).map_err(|e| Error::io("read", &index, e))?;
        Ok(Finished { shard, index_bytes, tally, limits: numbers(limits) })
    }

    /// Whether a conversion with these options would make the same shard of the same images: one that fails on bad images keeps none that
    /// images were left out of, and under higher limits these might be read.
    ///
    /// # Errors
    /// Limits that are lower than those of the shard: images of it might be beyond them.
    pub fn stands(&self, on_bad: OnBad, limits: &Limits) -> Result<bool, Error> {
        let (before, now) = (self.limits, numbers(limits));
        if now.iter().zip(before).any(|(now, before)| *now < before) {
            let [memory, _, _, seconds] = before;
            return Err(Error::Usage(format!(
                "{}: this finished shard was read under higher limits; repeat the command with those (at least --limit-memory {memory} \
                 --limit-seconds {seconds}), or remove the folder to begin anew",
                self.shard.file
            )));
        }
        Ok(self.tally.skipped.is_empty() || on_bad == OnBad::Skip && now == before)
    }

    /// Whether shard and index are in `dir` with their recorded sizes. This notices a copy that was cut short; flipped bits
    /// are left to `verify`.
    pub fn is_there(&self, dir: &Path) -> bool {
        let path = dir.join(&self.shard.file);
        size(&path).is_ok_and(|n| n == self.shard.bytes)
            && size(&index_path(&path)).is_ok_and(|n| n == self.index_bytes)
    }
}

fn numbers(limits: &Limits) -> [f64; 4] {
    [limits.memory as f64, limits.pixels as f64, f64::from(limits.scans), limits.seconds]
}

/// Bytes of a regular file; what a link leads to is not this conversion's.
fn size(path: &Path) -> io::Result<u64> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_file() { Ok(meta.len()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_limits_keep_shards_that_nothing_was_left_out_of() {
        let shard = ShardManifest { file: "a".into(), count: 1, bytes: 1 };
        let [low, usual] = [Limits::with_memory(1 << 20), Limits::DEFAULT];
        let finished = |limits: &Limits, skipped: &[&str]| {
            let skipped = skipped.iter().map(ToString::to_string).collect();
            let tally = Tally { skipped, ..Tally::default() };
            Finished { shard: shard.clone(), index_bytes: 0, tally, limits: numbers(limits) }
        };
        let stands = |before: &Limits, skipped: &[&str], on_bad, now: &Limits| {
            finished(before, skipped).stands(on_bad, now).unwrap()
        };
        for on_bad in [OnBad::Fail, OnBad::Skip] {
            assert!(stands(&low, &[], on_bad, &low) && stands(&low, &[], on_bad, &usual));
            let refused = finished(&usual, &[]).stands(on_bad, &low).unwrap_err();
            assert!(refused.is_usage() && refused.to_string().contains("--limit-memory 536870912"), "{refused}");
        }
        assert!(stands(&low, &["b.png"], OnBad::Skip, &low));
        assert!(!stands(&low, &["b.png"], OnBad::Skip, &usual) && !stands(&low, &["b.png"], OnBad::Fail, &low));
    }
}
