//! Prepares samples in chunks on several threads and hands them on in order, shard after shard: the result does not depend on
//! the threads, the memory not on the number of samples.
//!
//! Chunks are begun in order and a thread may run ahead of the slowest one only so far. So few shards are open at a time, and
//! of several errors the one reported is always that of the first chunk.

use super::gate::Gate;
use crate::error::Error;
use crate::pool;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Samples of a chunk.
const CHUNK: u64 = 8;

/// What is to be done to samples and shards.
pub(super) trait Work: Sync {
    /// What a thread keeps from chunk to chunk.
    type Worker;
    /// A chunk of prepared samples.
    type Chunk: Send;
    /// A shard being written.
    type Shard: Send;

    /// Makes what a new thread needs.
    fn worker(&self) -> Result<Self::Worker, Error>;
    /// Prepares some samples of a shard; called by any thread, at any time.
    fn prepare(&self, worker: &mut Self::Worker, shard: usize, samples: Range<u64>) -> Result<Self::Chunk, Error>;
    /// Begins a shard.
    fn open(&self, shard: usize) -> Result<Self::Shard, Error>;
    /// Appends a chunk, in order.
    fn append(&self, shard: &mut Self::Shard, chunk: Self::Chunk) -> Result<(), Error>;
    /// Ends a shard behind its last chunk.
    fn close(&self, number: usize, shard: Self::Shard) -> Result<(), Error>;
}

/// Does `work` on shards of these numbers of samples, on at most `jobs` threads (0: one for each core).
///
/// # Errors
/// The error of the first chunk that failed; no further chunk is begun then. A panic becomes [`Error::Panic`].
pub(super) fn run<W: Work>(work: &W, lengths: &[u64], jobs: usize) -> Result<(), Error> {
    let chunks = Chunks::of(lengths);
    let threads = pool::threads(jobs).min(usize::try_from(chunks.count()).unwrap_or(usize::MAX));
    let gate = Gate::new(chunks.count(), 2 * threads as u64 + 2);
    let lanes: Vec<Mutex<Lane<W>>> = lengths.iter().map(|_| Mutex::new(Lane::default())).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = None;
                while let Some(number) = gate.enter() {
                    let chunk = chunks.get(number);
                    let step = || step(work, &mut worker, &lanes[chunk.shard], chunk);
                    let result = panic::catch_unwind(AssertUnwindSafe(step))
                        .unwrap_or_else(|cause| Err(Error::Panic(pool::message(&*cause))));
                    gate.leave(number, result);
                }
            });
        }
    });
    gate.finish()
}

/// The chunks of all shards, numbered through. A shard without samples has one empty chunk.
struct Chunks<'a> {
    lengths: &'a [u64],
    /// Number of the first chunk of each shard, and of all chunks.
    starts: Vec<u64>,
}

/// Some consecutive samples of a shard.
struct ChunkRange {
    shard: usize,
    /// Number of the chunk in its shard.
    number: u64,
    samples: Range<u64>,
    is_last: bool,
}

impl<'a> Chunks<'a> {
    fn of(lengths: &'a [u64]) -> Self {
        let mut starts = vec![0u64];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + length.div_ceil(CHUNK).max(1));
        }
        Chunks { lengths, starts }
    }

    fn count(&self) -> u64 {
        self.starts[self.lengths.len()]
    }

    fn get(&self, chunk: u64) -> ChunkRange {
        let shard = self.starts.partition_point(|&start| start <= chunk) - 1;
        let number = chunk - self.starts[shard];
        let samples = number * CHUNK..self.lengths[shard].min((number + 1) * CHUNK);
        ChunkRange { shard, number, samples, is_last: chunk + 1 == self.starts[shard + 1] }
    }
}

/// Prepares one chunk, and appends all chunks of its shard that are next in order.
fn step<W: Work>(
    work: &W,
    worker: &mut Option<W::Worker>,
    lane: &Mutex<Lane<W>>,
    chunk: ChunkRange,
) -> Result<(), Error> {
    let worker = match worker {
        Some(worker) => worker,
        none => none.insert(work.worker()?),
    };
    let prepared = work.prepare(worker, chunk.shard, chunk.samples)?;
    let mut lane = lock(lane);
    lane.waiting.insert(chunk.number, prepared);
    if chunk.is_last {
        lane.end = Some(chunk.number + 1);
    }
    lane.advance(work, chunk.shard)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The chunks of one shard that are prepared, and the shard that they are appended to.
struct Lane<W: Work> {
    next: u64,
    end: Option<u64>,
    waiting: BTreeMap<u64, W::Chunk>,
    shard: Option<W::Shard>,
}

impl<W: Work> Default for Lane<W> {
    fn default() -> Self {
        Lane { next: 0, end: None, waiting: BTreeMap::new(), shard: None }
    }
}

impl<W: Work> Lane<W> {
    /// Appends the chunks that are next in order, and closes the shard behind the last one.
    fn advance(&mut self, work: &W, number: usize) -> Result<(), Error> {
        while let Some(chunk) = self.waiting.remove(&self.next) {
            let shard = match &mut self.shard {
                Some(shard) => shard,
                none => none.insert(work.open(number)?),
            };
            work.append(shard, chunk)?;
            self.next += 1;
        }
        match self.shard.take_if(|_| self.end == Some(self.next)) {
            Some(whole) => work.close(number, whole),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Notes what is appended; sample `bad` of shard 1 fails, sample `panics` panics.
    #[derive(Default)]
    struct Notes {
        shards: Mutex<BTreeMap<usize, Vec<u64>>>,
        most: AtomicU64,
        waiting: AtomicU64,
        bad: Option<u64>,
        panics: Option<u64>,
    }

    impl Work for Notes {
        type Worker = ();
        type Chunk = Vec<u64>;
        type Shard = Vec<u64>;

        fn worker(&self) -> Result<(), Error> {
            Ok(())
        }

        fn prepare(&self, _: &mut (), shard: usize, samples: Range<u64>) -> Result<Vec<u64>, Error> {
            let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(waiting, Ordering::Relaxed);
            // the first chunk of a shard is slow: others overtake it
            if samples.start == 0 {
                thread::sleep(Duration::from_millis(20));
            }
            for sample in samples.clone() {
                assert!(shard != 1 || self.panics != Some(sample), "sample {sample}");
                if shard == 1 && self.bad.is_some_and(|bad| sample >= bad) {
                    return Err(Error::Usage(format!("sample {sample}")));
                }
            }
            Ok(samples.collect())
        }

        fn open(&self, _: usize) -> Result<Vec<u64>, Error> {
            Ok(Vec::new())
        }

        fn append(&self, shard: &mut Vec<u64>, chunk: Vec<u64>) -> Result<(), Error> {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            shard.extend(chunk);
            Ok(())
        }

        fn close(&self, number: usize, shard: Vec<u64>) -> Result<(), Error> {
            assert!(lock(&self.shards).insert(number, shard).is_none());
            Ok(())
        }
    }

    #[test]
    fn samples_arrive_in_order_and_few_wait() {
        let lengths = [100, 0, 1, 8, 333];
        for jobs in [1, 2, 7] {
            let notes = Notes::default();
            run(&notes, &lengths, jobs).unwrap();
            let expected: BTreeMap<usize, Vec<u64>> =
                lengths.iter().enumerate().map(|(i, &n)| (i, (0..n).collect())).collect();
            assert_eq!(*lock(&notes.shards), expected);
            assert!(notes.most.into_inner() <= 2 * jobs as u64 + 2);
        }
        run(&Notes::default(), &[], 3).unwrap();
    }

    #[test]
    fn the_first_error_is_reported_and_shards_before_it_are_whole() {
        for jobs in [1, 4] {
            let notes = Notes { bad: Some(70), ..Notes::default() };
            let error = run(&notes, &[40, 500, 40], jobs).unwrap_err();
            assert_eq!(error.to_string(), "sample 70");
            let shards = lock(&notes.shards);
            assert!(shards[&0].len() == 40 && !shards.contains_key(&1));
        }
        let error = run(&Notes { panics: Some(9), ..Notes::default() }, &[1, 20], 2).unwrap_err();
        assert_eq!(error.to_string(), "a worker thread panicked: sample 9");
    }
}
