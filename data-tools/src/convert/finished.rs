//! A finished shard: its entry in `dataset.json`, and what was learnt of its samples.

use super::tally::Tally;
use crate::error::Error;
use loaders::ShardManifest;
use loaders::shard::index_path;
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
}

impl Finished {
    /// The finished shard in `dir`.
    pub fn new(dir: &Path, shard: ShardManifest, tally: Tally) -> Result<Self, Error> {
        let index = index_path(&dir.join(&shard.file));
        let index_bytes = size(&index).map_err(|e| Error::io("read", &index, e))?;
        Ok(Finished { shard, index_bytes, tally })
    }

    /// Whether shard and index are in `dir` with their recorded sizes. This notices a copy that was cut short; flipped bits
    /// are left to `verify`.
    pub fn is_there(&self, dir: &Path) -> bool {
        let path = dir.join(&self.shard.file);
        size(&path).is_ok_and(|n| n == self.shard.bytes)
            && size(&index_path(&path)).is_ok_and(|n| n == self.index_bytes)
    }
}

/// Bytes of a regular file; what a link leads to is not this conversion's.
fn size(path: &Path) -> io::Result<u64> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_file() { Ok(meta.len()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
