//! The row groups of Parquet tables, unpacked, the latest ones kept in a given memory.

use super::parquet::{Images, Table};
use crate::error::Error;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A row group that is read once, by the first thread that needs it; or what is wrong with it.
type Slot = Arc<OnceLock<Result<Arc<Images>, String>>>;

/// A kept row group.
struct Kept {
    table: usize,
    group: usize,
    slot: Slot,
}

/// The tables of a source.
pub(crate) struct RowGroups {
    tables: Vec<Table>,
    /// The most row groups that are kept.
    most: usize,
    /// Whether all are.
    fit: bool,
    /// The latest used one last.
    kept: Mutex<VecDeque<Kept>>,
}

impl RowGroups {
    /// Keeps as many row groups as fit into `memory` bytes, at least two.
    pub(crate) fn new(tables: Vec<Table>, memory: u64) -> Self {
        let sizes = || tables.iter().flat_map(Table::group_bytes);
        let largest = sizes().max().unwrap_or(0).max(1);
        let fit = sizes().sum::<u64>() <= memory;
        let most = if fit { usize::MAX } else { usize::try_from(memory / largest).unwrap_or(usize::MAX).max(2) };
        RowGroups { tables, most, fit, kept: Mutex::default() }
    }

    pub(crate) fn table(&self, number: usize) -> &Table {
        &self.tables[number]
    }

    /// Returns the total size in bytes for all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.stamp().bytes).sum()
    }

    /// How many row groups samples may be mixed over without being read again; `None` if all.
    pub(crate) fn together(&self) -> Option<usize> {
        // while one window ends the next has begun
        if self.fit { None } else { Some((self.most / 2).max(1)) }
    }

    /// The images of a row group.
    pub(crate) fn get(&self, table: usize, group: usize) -> Result<Arc<Images>, Error> {
        let slot = self.slot(table, group);
        let read = || self.tables[table].images(group).map(Arc::new).map_err(|e| e.to_string());
        let failed = |what: &String| {
            // the message begins with the path, which the error adds again
            let path = self.tables[table].path();
            let what = what.strip_prefix(&format!("{}: ", path.display())).unwrap_or(what);
            Error::input(path, what)
        };
        slot.get_or_init(read).as_ref().map(Arc::clone).map_err(failed)
    }

    fn slot(&self, table: usize, group: usize) -> Slot {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|k| (k.table, k.group) == (table, group));
        let found = at.and_then(|at| kept.remove(at)).unwrap_or_else(|| Kept { table, group, slot: Slot::default() });
        let slot = found.slot.clone();
        kept.push_back(found);
        if kept.len() > self.most {
            kept.pop_front();
        }
        slot
    }
}
