//! Prepares samples in chunks on several threads and passes the chunks on in order, shard by shard. The result does not
//! depend on the number of threads or the chunk size, and memory use does not depend on the number of samples.
//!
//! Chunks start in order, and a thread may be only a fixed number of chunks ahead of the slowest one. This keeps few
//! shards open. If more than one chunk fails, the error of the first one is reported. A separate thread closes shards,
//! because closing waits for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use loaders::guarded_with;

use crate::error::Error;
use crate::pool::{self, lock};

/// The longest time that a complete shard waits for others to be closed with it.
const GATHERING: Duration = Duration::from_secs(1);

/// The steps that the pipeline applies to samples and shards.
pub(super) trait Work: Sync {
    /// State that a thread keeps between chunks.
    type Worker;
    type Chunk: Send;
    type Shard: Send;
    /// A completely written shard that may not be synced to disk yet.
    type Unsynced: Send;

    /// Creates the state of a new thread.
    fn worker(&self) -> Result<Self::Worker, Error>;
    /// Prepares a range of samples of a shard. Threads call this concurrently and in any order.
    fn prepare(&self, worker: &mut Self::Worker, shard: usize, samples: Range<u64>) -> Result<Self::Chunk, Error>;
    /// Creates the file of a shard. Called once per shard, before its first chunk is appended.
    fn open(&self, shard: usize) -> Result<Self::Shard, Error>;
    /// Appends the next chunk of the shard.
    fn append(&self, shard: &mut Self::Shard, chunk: Self::Chunk) -> Result<(), Error>;
    /// Ends a shard after its last chunk. Does not wait for the disk.
    fn complete(&self, shard: Self::Shard) -> Result<Self::Unsynced, Error>;
    /// Returns the highest number of complete shards that wait to be synced together, at least 1. Their files stay open
    /// while they wait.
    fn closed_together(&self) -> usize;
    /// Syncs complete shards to disk.
    fn close(&self, shards: Vec<Self::Unsynced>) -> Result<(), Error>;
}

/// Runs `work` on shards with these numbers of samples, in chunks of `chunk` samples. Uses at most `jobs` threads (0
/// means one per core), and one more to close shards. Uses fewer threads if the system cannot create them. Returns the
/// error of the first chunk that failed. No further chunk starts after a failure. A panic becomes [`Error::Panic`].
pub(super) fn run<W: Work>(work: &W, lengths: &[u64], chunk: u64, jobs: usize) -> Result<(), Error> {
    run_on(work, lengths, chunk, jobs, Builder::new)
}

/// Works like [`run`], but with threads that `builder` configures, so that tests can make thread creation fail.
fn run_on<W: Work>(
    work: &W,
    lengths: &[u64],
    chunk: u64,
    jobs: usize,
    builder: impl Fn() -> Builder,
) -> Result<(), Error> {
    let chunks = Chunks::new(lengths, chunk.max(1));
    let threads = pool::threads(jobs).min(usize::try_from(chunks.count()).unwrap_or(usize::MAX));
    let scheduler = ChunkScheduler::new(chunks.count(), 2 * threads as u64 + 2);
    let queues: Vec<Mutex<ShardQueue<W>>> = lengths.iter().map(|_| Mutex::default()).collect();
    let (sender, ended) = crossbeam_channel::bounded(work.closed_together());
    thread::scope(|scope| {
        let (scheduler, queues, chunks) = (&scheduler, &queues, &chunks);
        let begin = |sender: Sender<EndedShard<W::Shard>>| {
            // Cannot fail: the receiver lives until all senders are dropped.
            let send_shard = move |ended| drop(sender.send(ended));
            builder().spawn_scoped(scope, move || prepare_all(work, scheduler, chunks, queues, send_shard)).is_ok()
        };
        // If a thread cannot be created, the existing threads do its work.
        let begun = (0..threads).take_while(|_| begin(sender.clone())).count();
        drop(sender);
        if begun == 0 {
            prepare_all(work, scheduler, chunks, queues, |ended| close_together(work, scheduler, ended, || None));
        }
        close_all(work, scheduler, &ended);
    });
    scheduler.into_result()
}

/// A shard whose last chunk has been appended.
struct EndedShard<S> {
    shard: S,
    /// Global number of the shard's last chunk.
    chunk: u64,
}

/// Completes shards as they arrive, until all sending threads have ended. Shards that arrive within [`GATHERING`] of
/// the first one are synced together.
fn close_all<W: Work>(work: &W, scheduler: &ChunkScheduler, ended: &Receiver<EndedShard<W::Shard>>) {
    while let Ok(first) = ended.recv() {
        let until = Instant::now() + GATHERING;
        close_together(work, scheduler, first, || ended.recv_deadline(until).ok());
    }
}

/// Completes `first` and the shards that `next` returns, and syncs them together.
fn close_together<W: Work>(
    work: &W,
    scheduler: &ChunkScheduler,
    first: EndedShard<W::Shard>,
    next: impl Fn() -> Option<EndedShard<W::Shard>>,
) {
    let (mut number, mut shards, mut ended) = (first.chunk, Vec::new(), Some(first));
    while let Some(EndedShard { shard, chunk }) = ended {
        match catch_panic(|| work.complete(shard)) {
            Ok(whole) => {
                shards.push(whole);
                number = number.min(chunk);
            }
            Err(error) => scheduler.fail(chunk, error),
        }
        ended = if shards.len() < work.closed_together() { next() } else { None };
    }
    if !shards.is_empty()
        && let Err(error) = catch_panic(|| work.close(shards))
    {
        scheduler.fail(number, error);
    }
}

/// Prepares chunks until there are no more. Passes each shard to `send_shard` after its last chunk.
fn prepare_all<W: Work>(
    work: &W,
    scheduler: &ChunkScheduler,
    chunks: &Chunks,
    queues: &[Mutex<ShardQueue<W>>],
    send_shard: impl Fn(EndedShard<W::Shard>),
) {
    let mut worker = None;
    while let Some(number) = scheduler.start_next() {
        let chunk = chunks.get(number);
        let step = || {
            let worker = match &mut worker {
                Some(worker) => worker,
                none => none.insert(work.worker()?),
            };
            let prepared = work.prepare(worker, chunk.shard, chunk.samples.clone())?;
            append(work, &queues[chunk.shard], &chunk, prepared)
        };
        match catch_panic(step) {
            Err(error) => scheduler.fail(number, error),
            Ok(shard) => {
                if let Some(shard) = shard {
                    send_shard(EndedShard { shard, chunk: chunks.last(chunk.shard) });
                }
                scheduler.finish_chunk(number);
            }
        }
    }
}

fn catch_panic<R>(part: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    guarded_with(part, Error::Panic)
}

/// The chunks of all shards with global numbers. A shard without samples has one empty chunk.
struct Chunks<'a> {
    lengths: &'a [u64],
    /// Number of samples per chunk.
    size: u64,
    /// Global number of each shard's first chunk, followed by the total number of chunks.
    starts: Vec<u64>,
}

struct ChunkRange {
    shard: usize,
    /// Number of the chunk within its shard.
    number: u64,
    samples: Range<u64>,
    is_last: bool,
}

impl<'a> Chunks<'a> {
    fn new(lengths: &'a [u64], size: u64) -> Self {
        let mut starts = vec![0u64];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + length.div_ceil(size).max(1));
        }
        Chunks { lengths, size, starts }
    }

    fn count(&self) -> u64 {
        self.starts[self.lengths.len()]
    }

    fn get(&self, chunk: u64) -> ChunkRange {
        let shard = self.starts.partition_point(|&start| start <= chunk) - 1;
        let number = chunk - self.starts[shard];
        let samples = number * self.size..self.lengths[shard].min((number + 1) * self.size);
        ChunkRange { shard, number, samples, is_last: chunk + 1 == self.starts[shard + 1] }
    }

    /// Returns the global number of the shard's last chunk.
    fn last(&self, shard: usize) -> u64 {
        self.starts[shard + 1] - 1
    }
}

/// The prepared chunks of one shard. One thread at a time appends them. Other threads add their chunks to the queue and
/// continue.
struct ShardQueue<W: Work> {
    next: u64,
    /// The chunks that have not been appended yet, by number. True for the last chunk of the shard.
    chunks: BTreeMap<u64, (bool, W::Chunk)>,
    /// The shard itself. The thread that appends takes it out.
    slot: ShardSlot<W::Shard>,
}

enum ShardSlot<S> {
    Unopened,
    Free(S),
    Taken,
}

impl<W: Work> Default for ShardQueue<W> {
    fn default() -> Self {
        ShardQueue { next: 0, chunks: BTreeMap::new(), slot: ShardSlot::Unopened }
    }
}

/// Adds a chunk to the queue of its shard. If no other thread is appending, appends the chunks that are next in order.
/// Returns the shard when its last chunk has been appended.
fn append<W: Work>(
    work: &W,
    queue: &Mutex<ShardQueue<W>>,
    range: &ChunkRange,
    chunk: W::Chunk,
) -> Result<Option<W::Shard>, Error> {
    let mut waiting = lock(queue);
    waiting.chunks.insert(range.number, (range.is_last, chunk));
    let next = waiting.next;
    if matches!(waiting.slot, ShardSlot::Taken) || !waiting.chunks.contains_key(&next) {
        return Ok(None);
    }
    let slot = std::mem::replace(&mut waiting.slot, ShardSlot::Taken);
    drop(waiting);
    let mut shard = match slot {
        ShardSlot::Free(shard) => shard,
        // Not `Taken`: this function has already returned in that case.
        ShardSlot::Unopened | ShardSlot::Taken => work.open(range.shard)?,
    };
    loop {
        let mut waiting = lock(queue);
        let next = waiting.next;
        let Some((is_last, chunk)) = waiting.chunks.remove(&next) else {
            waiting.slot = ShardSlot::Free(shard);
            return Ok(None);
        };
        waiting.next += 1;
        drop(waiting);
        work.append(&mut shard, chunk)?;
        if is_last {
            return Ok(Some(shard));
        }
    }
}

/// Hands out chunk numbers in order and limits how many chunks are in progress.
pub(super) struct ChunkScheduler {
    chunks: u64,
    /// The highest allowed distance between the oldest chunk in progress and the newest.
    ahead: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    oldest: u64,
    done: BTreeSet<u64>,
    error: Option<(u64, Error)>,
}

impl ChunkScheduler {
    /// Creates a scheduler for `chunks` chunks. A chunk is only handed out if it is less than `ahead` chunks after the
    /// oldest one in progress.
    pub fn new(chunks: u64, ahead: u64) -> Self {
        ChunkScheduler { chunks, ahead, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for room and returns the next chunk number. Returns `None` after the last chunk or an error.
    pub fn start_next(&self) -> Option<u64> {
        let full = |s: &mut State| s.error.is_none() && s.next < self.chunks && s.next - s.oldest >= self.ahead;
        let mut state = self.changed.wait_while(lock(&self.state), full).unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() || state.next >= self.chunks {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Marks a chunk as done. Threads that wait for room can then continue.
    pub fn finish_chunk(&self, chunk: u64) {
        let mut state = lock(&self.state);
        state.done.insert(chunk);
        while {
            let oldest = state.oldest;
            state.done.remove(&oldest)
        } {
            state.oldest += 1;
        }
        self.changed.notify_all();
    }

    /// Reports that a chunk or the shard that it ended has failed. No further chunk is handed out.
    pub fn fail(&self, chunk: u64, error: Error) {
        let mut state = lock(&self.state);
        if state.error.as_ref().is_none_or(|(first, _)| chunk < *first) {
            state.error = Some((chunk, error));
        }
        self.changed.notify_all();
    }

    /// Returns the error of the first failed chunk.
    pub fn into_result(self) -> Result<(), Error> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.error.map_or(Ok(()), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Records the appended samples. In shard 1, samples from `bad` on fail and sample `panics` panics.
    #[derive(Default)]
    struct Notes {
        shards: Mutex<BTreeMap<usize, Vec<u64>>>,
        most: AtomicU64,
        waiting: AtomicU64,
        bad: Option<u64>,
        panics: Option<u64>,
    }

    const CLOSED_TOGETHER: usize = 24;

    impl Work for Notes {
        type Worker = ();
        type Chunk = Vec<u64>;
        type Shard = (usize, Vec<u64>);
        type Unsynced = (usize, Vec<u64>);

        fn worker(&self) -> Result<(), Error> {
            Ok(())
        }

        fn prepare(&self, _: &mut (), shard: usize, samples: Range<u64>) -> Result<Vec<u64>, Error> {
            let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(waiting, Ordering::Relaxed);
            // Delay the first chunk of each shard so that others overtake it.
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

        fn open(&self, shard: usize) -> Result<(usize, Vec<u64>), Error> {
            Ok((shard, Vec::new()))
        }

        fn closed_together(&self) -> usize {
            CLOSED_TOGETHER
        }

        fn append(&self, (_, shard): &mut (usize, Vec<u64>), chunk: Vec<u64>) -> Result<(), Error> {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            shard.extend(chunk);
            Ok(())
        }

        fn complete(&self, shard: (usize, Vec<u64>)) -> Result<(usize, Vec<u64>), Error> {
            Ok(shard)
        }

        fn close(&self, shards: Vec<(usize, Vec<u64>)>) -> Result<(), Error> {
            assert!(!shards.is_empty());
            for (number, shard) in shards {
                assert!(lock(&self.shards).insert(number, shard).is_none());
            }
            Ok(())
        }
    }

    #[test]
    fn samples_arrive_in_order_and_few_wait() {
        let lengths = [100, 0, 1, 8, 333];
        for (jobs, chunk) in [(1, 8), (2, 8), (7, 8), (7, 1), (2, 1000)] {
            let notes = Notes::default();
            run(&notes, &lengths, chunk, jobs).unwrap();
            let expected: BTreeMap<usize, Vec<u64>> =
                lengths.iter().enumerate().map(|(i, &n)| (i, (0..n).collect())).collect();
            assert_eq!(*lock(&notes.shards), expected);
            assert!(notes.most.into_inner() <= 2 * jobs as u64 + 2);
        }
        run(&Notes::default(), &[], 8, 3).unwrap();
    }

    /// No address space has room for stacks of this size, so thread creation fails.
    #[test]
    fn without_threads_this_one_does_all() {
        let none = || Builder::new().stack_size(1 << 60);
        assert!(thread::scope(|scope| none().spawn_scoped(scope, || ()).is_err()));
        let lengths = vec![40; 2 * CLOSED_TOGETHER];
        let notes = Notes::default();
        run_on(&notes, &lengths, 8, 3, none).unwrap();
        assert!(lock(&notes.shards).len() == lengths.len() && lock(&notes.shards)[&5] == (0..40).collect::<Vec<_>>());
        let error = run_on(&Notes { bad: Some(7), ..Notes::default() }, &[4, 20], 8, 3, none).unwrap_err();
        assert_eq!(error.to_string(), "sample 7");
    }

    #[test]
    fn the_first_error_is_reported_and_shards_before_it_are_whole() {
        for jobs in [1, 4] {
            let notes = Notes { bad: Some(70), ..Notes::default() };
            let error = run(&notes, &[40, 500, 40], 8, jobs).unwrap_err();
            assert_eq!(error.to_string(), "sample 70");
            let shards = lock(&notes.shards);
            assert!(shards[&0].len() == 40 && !shards.contains_key(&1));
        }
        let error = run(&Notes { panics: Some(9), ..Notes::default() }, &[1, 20], 8, 2).unwrap_err();
        assert!(matches!(&error, Error::Panic(text) if text.contains("sample 9")), "{error}");
    }
}
