//! The shards of a split that are open at once, shared by a loader's threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::storage::read_plan::ReadPlan;
use crate::storage::shard::Shard;
use crate::storage::split::Split;

/// A split and its open shards.
#[derive(Debug)]
pub(crate) struct OpenShards {
    split: Arc<Split>,
    plan: ReadPlan,
    stop: AtomicBool,
    /// In order of last use.
    open: Mutex<Vec<OpenShard>>,
}

/// A shard that is open or being opened.
#[derive(Debug)]
struct OpenShard {
    number: usize,
    /// Filled by the first thread that needs it; others wait meanwhile.
    cell: Arc<Mutex<Option<Arc<Shard>>>>,
}

/// The shards, by number, that one thread holds while it fills a piece of a batch.
pub(crate) type HeldShards = Vec<(usize, Arc<Shard>)>;

impl OpenShards {
    pub(crate) fn new(split: Arc<Split>, plan: ReadPlan) -> Self {
        Self { split, plan, stop: AtomicBool::new(false), open: Mutex::default() }
    }

    pub(crate) fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    /// Tells readers to end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// An open shard: one that the split keeps mapped, or one that is added to `held`.
    pub(crate) fn shard<'a>(&'a self, number: usize, held: &'a mut HeldShards) -> Result<&'a Shard, Error> {
        if self.plan.open.is_none() {
            return self.split.shard(number);
        }
        let at = match held.iter().position(|(n, _)| *n == number) {
            Some(at) => at,
            None => {
                held.push((number, self.open(number)?));
                held.len() - 1
            }
        };
        Ok(&held[at].1)
    }

    /// An open shard. If too many are open, the one that was unused for longest is closed.
    pub(crate) fn open(&self, number: usize) -> Result<Arc<Shard>, Error> {
        let cell = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let shard = match open.iter().position(|shard| shard.number == number) {
                Some(at) => open.remove(at),
                None => OpenShard { number, cell: Arc::default() },
            };
            let cell = Arc::clone(&shard.cell);
            open.push(shard);
            if open.len() > self.plan.open.unwrap_or(usize::MAX) {
                open.remove(0);
            }
            cell
        };
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cell {
            Some(shard) => Ok(Arc::clone(shard)),
            None => {
                let shard = Arc::new(self.split.open(number, self.plan.access)?);
                *cell = Some(Arc::clone(&shard));
                Ok(shard)
            }
        }
    }

    /// Opens a shard and reads it ahead. An error is not lost: it occurs again, and is reported, when the shard is used.
    pub(crate) fn prefetch(&self, number: usize) {
        if let Ok(shard) = self.open(number) {
            shard.read_ahead(|| self.stop.load(Ordering::Relaxed));
        }
    }

    /// Reads the split into the page cache.
    pub(crate) fn prefetch_all(&self) {
        for number in 0..self.split.shards().len() {
            let stop = || self.stop.load(Ordering::Relaxed);
            match self.split.shard(number) {
                Ok(shard) if !stop() => shard.read_ahead(stop),
                _ => return,
            }
        }
    }
}
