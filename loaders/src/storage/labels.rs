//! The labels of all samples of a split, read without their images.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::fault::Fault;
use crate::format::example;
use crate::format::record::HEADER;
use crate::storage::shard::{Access, Shard};
use crate::storage::split::Split;
use crate::threads::on_threads;

/// Bytes of a record that are read for its label; where the label stands behind them, all of it is.
const HEAD: usize = 1024;

impl Split {
    /// The label of each sample, by id; of several the first. With `skip`, none for a record that has no valid one; else that ends it.
    /// Checksums are verified only of records that are read as a whole.
    pub fn labels(&self, skip: bool, threads: usize) -> Result<Vec<Option<u32>>, Error> {
        let (failed, found) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let numbers = (0..self.shards().len()).take_while(|_| !failed.load(Ordering::Relaxed));
        on_threads(threads.min(self.shards().len()), numbers, |number| {
            let labels = self.labels_of(number, skip);
            failed.fetch_or(labels.is_err(), Ordering::Relaxed);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((number, labels));
        });
        let mut parts = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_by_key(|part| part.0);
        let all: Vec<Vec<Option<u32>>> = parts.into_iter().map(|part| part.1).collect::<Result<_, _>>()?;
        Ok(all.concat())
    }

    fn labels_of(&self, number: usize, skip: bool) -> Result<Vec<Option<u32>>, Error> {
        let shard = self.open(number, Access::Records)?;
        let mut bytes = Vec::new();
        let label = |record| match self.label_of(&shard, record, &mut bytes) {
            Ok(label) => Ok(Some(label)),
            Err(Error::Record { .. }) if skip => Ok(None),
            Err(error) => Err(error),
        };
        (0..shard.len()).map(label).collect()
    }

    fn label_of(&self, shard: &Shard, record: u64, bytes: &mut Vec<u8>) -> Result<u32, Error> {
        let [from, to] = [record, record + 1].map(|number| shard.offset(number).unwrap_or(0));
        let head = usize::try_from(to - from).unwrap_or(usize::MAX).min(HEADER + HEAD);
        shard.read_at(bytes, head, from)?;
        let label = match bytes.get(HEADER..).and_then(example::label) {
            Some(stored) => self.label(stored),
            None => {
                let payload = shard.record(record, bytes)?;
                example::parse(payload).map_err(Fault::from).and_then(|example| self.first_class(&example))
            }
        };
        label.map_err(|fault| shard.fault(record, fault))
    }
}
