//! The records of one batch by a few long reads, done by other threads while the batch before is filled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::error::Error;
use crate::storage::io::{Storage, Want};
use crate::storage::shard::Shard;

/// Bytes between two records that are read along rather than skipped.
const GAP: u64 = 64 << 10;
/// The longest read that is made of several records.
const LONGEST: u64 = 8 << 20;
/// Reads start and end at multiples of this, as pages and stripes do.
const ALIGN: u64 = 4096;

/// A stretch of a shard, on its way to a reader or back.
pub(crate) struct Extent {
    number: usize,
    shard: usize,
    offset: u64,
    bytes: Vec<u8>,
    result: Result<(), Error>,
    back: Sender<Extent>,
}

impl Extent {
    /// Reads the bytes and sends them back.
    pub(crate) fn read(mut self, open: impl FnOnce(usize) -> Result<Arc<Shard>, Error>) {
        let bytes = &mut self.bytes;
        let read = || open(self.shard).and_then(|shard| shard.read_at(bytes, self.offset));
        let panicked = || Error::Panic { thread: self.number, message: "while reading ahead".into() };
        self.result = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(panicked()));
        let back = self.back.clone();
        // a failure means that the loader has ended
        let _ = back.send(self);
    }
}

/// The records of one batch: asked for by `begin`, there after `finish`.
pub(crate) struct Fetch {
    /// Shard, offset and end of each record, in the batch's order.
    records: Vec<(usize, u64, u64)>,
    /// Positions in `records`, by place in the files.
    sorted: Vec<usize>,
    /// Extent of each record.
    extents_of: Vec<usize>,
    extents: Vec<Extent>,
    pending: usize,
    spare: Vec<Vec<u8>>,
    back: Sender<Extent>,
    arrived: Receiver<Extent>,
}

impl Fetch {
    pub(crate) fn new() -> Self {
        let (back, arrived) = unbounded();
        Self {
            records: Vec::new(),
            sorted: Vec::new(),
            extents_of: Vec::new(),
            extents: Vec::new(),
            pending: 0,
            spare: Vec::new(),
            back,
            arrived,
        }
    }

    /// Asks the readers for these samples' records.
    pub(crate) fn begin(&mut self, storage: &Storage, ids: &[u64], want: impl Fn(Want)) -> Result<(), Error> {
        self.finish();
        self.records.clear();
        let mut held = Vec::new();
        for &id in ids {
            let (place, record) = storage.split().locate(id)?;
            let shard = storage.shard(place, &mut held)?;
            let (from, to) = (shard.offset(record).unwrap_or(0), shard.offset(record + 1).unwrap_or(0));
            self.records.push((place, from, to));
        }
        let file_ends = |place: usize| storage.split().shards()[place].bytes;
        for (number, (shard, from, to)) in self.join(file_ends).into_iter().enumerate() {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize((to - from) as usize, 0);
            self.pending += 1;
            want(Want::Extent(Extent { number, shard, offset: from, bytes, result: Ok(()), back: self.back.clone() }));
        }
        Ok(())
    }

    /// The reads to make: neighbours in one, aligned, none past the end of its file.
    fn join(&mut self, file_ends: impl Fn(usize) -> u64) -> Vec<(usize, u64, u64)> {
        let Self { records, sorted, extents_of, .. } = self;
        sorted.clear();
        sorted.extend(0..records.len());
        sorted.sort_by_key(|&i| records[i]);
        extents_of.clear();
        extents_of.resize(records.len(), 0);
        let mut reads: Vec<(usize, u64, u64)> = Vec::new();
        for &i in sorted.iter() {
            let (shard, from, to) = records[i];
            let from = from / ALIGN * ALIGN;
            let to = to.next_multiple_of(ALIGN).min(file_ends(shard));
            match reads.last_mut() {
                Some(last) if last.0 == shard && from <= last.2 + GAP && to.max(last.2) - last.1 <= LONGEST => {
                    last.2 = last.2.max(to);
                }
                _ => reads.push((shard, from, to)),
            }
            extents_of[i] = reads.len() - 1;
        }
        reads
    }

    /// Waits for what was asked for; the buffers of the batch before are kept for the next.
    pub(crate) fn finish(&mut self) {
        if self.pending == 0 {
            return;
        }
        self.spare.extend(self.extents.drain(..).map(|extent| extent.bytes));
        while self.pending > 0 {
            // cannot end early: this end holds a sender, too, and each reader answers each request
            let Ok(extent) = self.arrived.recv() else { break };
            self.extents.push(extent);
            self.pending -= 1;
        }
        self.extents.sort_by_key(|extent| extent.number);
    }

    /// The bytes of the batch's record `i`, framing included.
    pub(crate) fn record(&mut self, i: usize) -> Result<&[u8], Error> {
        let extent = &mut self.extents[self.extents_of[i]];
        std::mem::replace(&mut extent.result, Ok(()))?;
        let (_, from, to) = self.records[i];
        Ok(&extent.bytes[(from - extent.offset) as usize..(to - extent.offset) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(records: &[(usize, u64, u64)]) -> (Vec<(usize, u64, u64)>, Vec<usize>) {
        let mut fetch = Fetch::new();
        fetch.records = records.to_vec();
        let reads = fetch.join(|_| 100 << 20);
        (reads, fetch.extents_of)
    }

    #[test]
    fn neighbours_are_one_read() {
        let (reads, of) = join(&[(0, 5000, 9000), (1, 0, 10), (0, 100, 5000), (0, 40_000, 41_000)]);
        assert_eq!(reads, [(0, 0, 40_960 + 4096), (1, 0, 4096)]);
        assert_eq!(of, [0, 1, 0, 0]);
    }

    #[test]
    fn far_records_and_long_stretches_are_reads_of_their_own() {
        let far = 10_000 + 2 * GAP;
        assert_eq!(join(&[(0, 0, 10_000), (0, far, far + 10)]).0.len(), 2);
        // 1 MiB each, end to end: eight to a read
        let all: Vec<_> = (0..20).map(|i| (0, i << 20, (i + 1) << 20)).collect();
        let (reads, of) = join(&all);
        assert_eq!(reads.iter().map(|r| r.2 - r.1).collect::<Vec<_>>(), [8 << 20, 8 << 20, 4 << 20]);
        assert_eq!((of[7], of[8], of[19]), (0, 1, 2));
    }

    #[test]
    fn reads_end_with_the_file() {
        let mut fetch = Fetch::new();
        fetch.records = vec![(0, 5000, 6001)];
        assert_eq!(fetch.join(|_| 6001), [(0, 4096, 6001)]);
    }
}
