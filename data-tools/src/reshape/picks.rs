//! Which records of which data sets a new one gets.

use crate::error::Error;
use loaders::{Dataset, Manifest, Permutation, Split};
use std::path::Path;

/// A data set that records are taken from.
pub(super) struct Set {
    pub manifest: Manifest,
    /// Its splits, in the order of `dataset.json`.
    pub splits: Vec<Split>,
    /// The stored label of each of its classes in the new data set.
    pub labels: Vec<i64>,
}

impl Set {
    /// The data set in `dir`, whose labels stay.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let dataset = Dataset::open(dir)?;
        let splits = dataset.manifest.splits.keys().map(|name| dataset.split(name)).collect::<Result<_, _>>()?;
        let offset = dataset.manifest.label_offset;
        let labels = (0..dataset.manifest.classes.len()).map(|class| class as i64 + offset).collect();
        Ok(Set { manifest: dataset.manifest, splits, labels })
    }

    /// The number of the split of this name.
    pub(super) fn find(&self, dir: &Path, name: &str) -> Result<usize, Error> {
        let found = self.splits.iter().position(|split| split.name() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self.splits.iter().map(|split| format!("`{}`", split.name())).collect();
            let (dir, name, known) = (dir.to_path_buf(), name.to_string(), known.join(", "));
            Error::Loaders(loaders::Error::UnknownSplit { dir, name, known })
        })
    }

    /// The class of each sample of a split; where images may have several, all count as one class.
    pub(super) fn classes_of(&self, split: usize) -> Result<Vec<u32>, Error> {
        let (split, mut copy) = (&self.splits[split], Vec::new());
        if split.multi_label() {
            return Ok(vec![0; split.len() as usize]);
        }
        (0..split.len()).map(|id| Ok(split.record(id, &mut copy)?.1)).collect()
    }
}

/// A record of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pick {
    pub set: u32,
    pub split: u32,
    pub id: u64,
}

/// A split of the new data set.
pub(super) struct Target {
    pub name: String,
    pub picks: Vec<Pick>,
}

impl Target {
    /// All samples of split `split` of set `set` whose numbers `keep` keeps, in their order.
    pub(super) fn of(name: &str, set: usize, split: usize, len: u64, keep: impl Fn(u64) -> bool) -> Self {
        let pick = |id| Pick { set: set as u32, split: split as u32, id };
        Target { name: name.to_string(), picks: (0..len).filter(|&id| keep(id)).map(pick).collect() }
    }

    /// Shuffles the picks.
    pub(super) fn shuffle(&mut self, seed: u64) {
        let order = Permutation::new(seed, 0, self.picks.len() as u64);
        self.picks = (0..self.picks.len() as u64).map(|at| self.picks[order.get(at) as usize]).collect();
    }
}
