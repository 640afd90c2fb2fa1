//! The labels of all samples of a split, read without their images.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::Error;
use crate::fault::Fault;
use crate::format::example;
use crate::format::record::HEADER;
use crate::storage::shard::{Access, Shard};
use crate::storage::split::Split;

/// Bytes of a record that are read for its label; where the label stands behind them, all of it is.
const HEAD: usize = 1024;

/// The labels of one shard.
struct Part {
    number: usize,
    labels: Vec<Option<u32>>,
}

impl Split {
    /// The label of each sample, by id; of several the first. With `skip`, none for a record that has no valid one; else that ends it.
    /// Checksums are verified only of records that are read as a whole.
    pub fn labels(&self, skip: bool, threads: usize) -> Result<Vec<Option<u32>>, Error> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut parts = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.shards().len() {
                    return Ok(parts);
                }
                parts.push(Part { number, labels: self.labels_of(number, skip)? });
            }
        };
        let threads = threads.clamp(1, self.shards().len().max(1));
        let ended: Vec<Result<Vec<Part>, Error>> = thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            all.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut parts: Vec<Part> = ended.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        parts.sort_by_key(|part| part.number);
        Ok(parts.into_iter().flat_map(|part| part.labels).collect())
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
