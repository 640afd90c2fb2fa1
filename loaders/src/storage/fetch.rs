//! Reads the records of a batch with a few long reads. Reader threads do this while the previous batch is being filled.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::error::Error;
use crate::guarded::guarded_with;
use crate::storage::read_plan::OpenShards;
use crate::storage::shard::Shard;

/// If the gap between two records is at most this many bytes, it is read together with them.
const GAP: u64 = 64 << 10;
/// Maximum size in bytes of a read that covers more than one record.
const LONGEST: u64 = 8 << 20;
/// Reads start and end at multiples of this number of bytes, because pages and stripes do too.
const ALIGN: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ByteRange {
    shard: usize,
    from: u64,
    to: u64,
}

/// The records of a batch. `begin` requests them, and they are available after `finish`.
pub(crate) struct Fetch {
    /// The shard and byte range of each record, in batch order.
    records: Vec<ByteRange>,
    /// Indices into `records`, sorted by shard and position.
    sorted: Vec<usize>,
    /// Index of the extent that contains each record.
    extents_of: Vec<usize>,
    extents: Vec<Extent>,
    /// Number of extents that have not come back from the readers yet.
    pending: usize,
    /// Buffers of earlier batches, for reuse.
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

    /// Sends requests for the records of these samples to the reader threads.
    pub(crate) fn begin(&mut self, storage: &OpenShards, ids: &[u64], send: impl Fn(Extent)) -> Result<(), Error> {
        self.finish();
        self.spare.extend(self.extents.drain(..).map(|extent| extent.bytes));
        self.records.clear();
        let mut held = Vec::new();
        for &id in ids {
            let (number, record) = storage.split().locate(id)?;
            let shard = storage.shard(number, &mut held)?;
            let (from, to) = (shard.offset(record).unwrap_or(0), shard.offset(record + 1).unwrap_or(0));
            self.records.push(ByteRange { shard: number, from, to });
        }
        let file_ends = |shard: usize| storage.split().shards()[shard].bytes;
        for (number, ByteRange { shard, from, to }) in self.join(file_ends).into_iter().enumerate() {
            let bytes = self.buffer((to - from) as usize);
            self.pending += 1;
            send(Extent { number, shard, offset: from, bytes, result: Ok(()), back: self.back.clone() });
        }
        Ok(())
    }

    /// Computes the reads to make. They are aligned, cover neighbouring records together, and do not go past the end of
    /// a file.
    fn join(&mut self, file_ends: impl Fn(usize) -> u64) -> Vec<ByteRange> {
        let Self { records, sorted, extents_of, .. } = self;
        sorted.clear();
        sorted.extend(0..records.len());
        sorted.sort_by_key(|&i| records[i]);
        extents_of.clear();
        extents_of.resize(records.len(), 0);
        let mut reads: Vec<ByteRange> = Vec::new();
        for &i in sorted.iter() {
            let ByteRange { shard, from, to } = records[i];
            let from = from / ALIGN * ALIGN;
            let to = to.next_multiple_of(ALIGN).min(file_ends(shard));
            match reads.last_mut() {
                Some(last)
                    if last.shard == shard && from <= last.to + GAP && to.max(last.to) - last.from <= LONGEST =>
                {
                    last.to = last.to.max(to);
                }
                _ => reads.push(ByteRange { shard, from, to }),
            }
            extents_of[i] = reads.len() - 1;
        }
        reads
    }

    /// Returns a buffer of this length. A buffer that is far too large is freed, because the buffers of all batches would
    /// otherwise grow to the largest record of the data set.
    fn buffer(&mut self, length: usize) -> Vec<u8> {
        let spare = self.spare.pop().filter(|bytes| bytes.capacity() / 2 <= length.max(GAP as usize));
        let mut bytes = spare.unwrap_or_default();
        bytes.resize(length, 0);
        bytes
    }

    /// Waits for all requests.
    pub(crate) fn finish(&mut self) {
        if self.pending == 0 {
            return;
        }
        while self.pending > 0 {
            // `recv` cannot fail: `self` holds a sender too, and readers answer every request.
            let Ok(extent) = self.arrived.recv() else { break };
            self.extents.push(extent);
            self.pending -= 1;
        }
        self.extents.sort_by_key(|extent| extent.number);
    }

    /// Returns the bytes of the batch's record `i`, including the framing.
    pub(crate) fn record(&mut self, i: usize) -> Result<&[u8], Error> {
        let extent = &mut self.extents[self.extents_of[i]];
        std::mem::replace(&mut extent.result, Ok(()))?;
        let ByteRange { from, to, .. } = self.records[i];
        Ok(&extent.bytes[(from - extent.offset) as usize..(to - extent.offset) as usize])
    }
}

/// A range of a shard's bytes that is sent to a reader thread and back.
pub(crate) struct Extent {
    /// Number of the extent in its batch.
    pub number: usize,
    pub shard: usize,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub result: Result<(), Error>,
    /// The channel that returns the extent after the read.
    pub back: Sender<Extent>,
}

impl Extent {
    pub(crate) fn read(mut self, open: impl FnOnce(usize) -> Result<Arc<Shard>, Error>) {
        let length = self.bytes.len();
        let bytes = &mut self.bytes;
        let read = || open(self.shard).and_then(|shard| shard.read_at(bytes, length, self.offset));
        let panicked =
            |message| Error::Panic { thread: self.number, message: format!("{message}, while reading ahead") };
        self.result = guarded_with(read, panicked);
        let back = self.back.clone();
        // Sending fails only if the loader has ended.
        let _ = back.send(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range((shard, from, to): (usize, u64, u64)) -> ByteRange {
        ByteRange { shard, from, to }
    }

    fn join(records: &[(usize, u64, u64)]) -> (Vec<ByteRange>, Vec<usize>) {
        let mut fetch = Fetch::new();
        fetch.records = records.iter().copied().map(range).collect();
        let reads = fetch.join(|_| 100 << 20);
        (reads, fetch.extents_of)
    }

    #[test]
    fn neighbouring_records_share_one_read() {
        let (reads, of) = join(&[(0, 5000, 9000), (1, 0, 10), (0, 100, 5000), (0, 40_000, 41_000)]);
        assert_eq!(reads, [(0, 0, 40_960 + 4096), (1, 0, 4096)].map(range));
        assert_eq!(of, [0, 1, 0, 0]);
    }

    #[test]
    fn distant_records_and_long_ranges_are_read_separately() {
        let far = 10_000 + 2 * GAP;
        assert_eq!(join(&[(0, 0, 10_000), (0, far, far + 10)]).0.len(), 2);
        // Records of 1 MiB without gaps: eight fit into one read.
        let all: Vec<_> = (0..20).map(|i| (0, i << 20, (i + 1) << 20)).collect();
        let (reads, of) = join(&all);
        assert_eq!(reads.iter().map(|read| read.to - read.from).collect::<Vec<_>>(), [8 << 20, 8 << 20, 4 << 20]);
        assert_eq!((of[7], of[8], of[19]), (0, 1, 2));
    }

    #[test]
    fn large_buffers_are_not_kept_for_small_reads() {
        let mut fetch = Fetch::new();
        let large = 8 * GAP as usize;
        fetch.spare.push(vec![0; large]);
        assert_eq!(fetch.buffer(large / 2).capacity(), large);
        fetch.spare.push(vec![0; large]);
        let small = fetch.buffer(10);
        assert_eq!((small.len(), small.capacity() < large), (10, true));
    }

    #[test]
    fn reads_stop_at_the_end_of_the_file() {
        let mut fetch = Fetch::new();
        fetch.records = vec![range((0, 5000, 6001))];
        assert_eq!(fetch.join(|_| 6001), [range((0, 4096, 6001))]);
    }
}
