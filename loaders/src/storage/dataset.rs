//! A data set: a folder with `dataset.json`, shards, and their indexes.

use std::path::{Path, PathBuf};

use crate::error::Error;
pub use crate::format::manifest::{MANIFEST, Manifest, ShardManifest, SplitManifest, VERSION};
pub use crate::storage::split::Split;

/// A folder with its manifest.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The folder.
    pub dir: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
}

impl Dataset {
    /// Reads the manifest; shards are opened by [`Dataset::split`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let manifest = Manifest::read(&dir)?;
        Ok(Self { dir, manifest })
    }

    /// Opens and maps all shards of a split and checks sizes, indexes and counts against the manifest.
    pub fn split(&self, name: &str) -> Result<Split, Error> {
        let split = self.split_lazily(name)?;
        (0..split.shards().len()).try_for_each(|number| split.shard(number).map(drop))?;
        Ok(split)
    }

    /// The same, but each shard is opened and checked when it is first used: for orders in which a rank needs few of them.
    pub fn split_lazily(&self, name: &str) -> Result<Split, Error> {
        let split = self.manifest.splits.get(name).ok_or_else(|| Error::UnknownSplit {
            dir: self.dir.clone(),
            name: name.to_owned(),
            known: self.known_splits(),
        })?;
        Ok(Split::new(name, &self.dir, &self.manifest, split))
    }

    fn known_splits(&self) -> String {
        let names: Vec<_> = self.manifest.splits.keys().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}
