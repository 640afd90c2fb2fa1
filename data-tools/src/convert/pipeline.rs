//! Prepares samples in chunks on a few threads and hands them on in order, shard after shard: the result does
//! not depend on the threads, the memory not on the number of samples.
//!
//! Chunks are begun in order and a thread may run ahead of the slowest one only so far. So few shards are open
//! at a time, and of several errors the one reported is always that of the first chunk.

use crate::error::Error;
use crate::pool;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Samples of a chunk.
const CHUNK: u64 = 8;

/// What is to be done to samples and shards.
pub(crate) trait Line: Sync {
    /// What a thread keeps from chunk to chunk.
    type Worker;
    /// A chunk when it is prepared.
    type Part: Send;
    /// A shard being written.
    type Shard: Send;

    /// For a new thread.
    fn worker(&self) -> Result<Self::Worker, Error>;
    /// Prepares some samples of a shard; by any thread, at any time.
    fn prepare(&self, worker: &mut Self::Worker, shard: usize, samples: Range<u64>) -> Result<Self::Part, Error>;
    /// Begins a shard.
    fn open(&self, shard: usize) -> Result<Self::Shard, Error>;
    /// Appends a chunk, in order.
    fn append(&self, shard: &mut Self::Shard, part: Self::Part) -> Result<(), Error>;
    /// Ends a shard behind its last chunk.
    fn close(&self, number: usize, shard: Self::Shard) -> Result<(), Error>;
}

/// Runs `line` over shards of these numbers of samples on at most `jobs` threads (0: one for each core).
///
/// # Errors
/// The error of the first chunk that failed; no further chunk is begun then. A panic becomes
/// [`Error::Panic`].
pub(crate) fn run<L: Line>(line: &L, lengths: &[u64], jobs: usize) -> Result<(), Error> {
    let mut starts = vec![0u64];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + length.div_ceil(CHUNK).max(1));
    }
    let chunks = starts[lengths.len()];
    let threads = pool::threads(jobs).min(usize::try_from(chunks).unwrap_or(usize::MAX));
    let gate = Gate::new(chunks, 2 * threads as u64 + 2);
    let lanes: Vec<Mutex<Lane<L>>> = lengths.iter().map(|_| Mutex::new(Lane::default())).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = None;
                while let Some(chunk) = gate.enter() {
                    let shard = starts.partition_point(|&start| start <= chunk) - 1;
                    let number = chunk - starts[shard];
                    let samples = number * CHUNK..lengths[shard].min((number + 1) * CHUNK);
                    let last = chunk + 1 == starts[shard + 1];
                    let work = || step(line, &mut worker, &lanes[shard], shard, number, samples, last);
                    let result = panic::catch_unwind(AssertUnwindSafe(work))
                        .unwrap_or_else(|cause| Err(Error::Panic(pool::message(&*cause))));
                    gate.leave(chunk, result);
                }
            });
        }
    });
    gate.finish()
}

/// One chunk, and what waits behind it.
fn step<L: Line>(
    line: &L,
    worker: &mut Option<L::Worker>,
    lane: &Mutex<Lane<L>>,
    shard: usize,
    number: u64,
    samples: Range<u64>,
    last: bool,
) -> Result<(), Error> {
    let worker = match worker {
        Some(worker) => worker,
        none => none.insert(line.worker()?),
    };
    let part = line.prepare(worker, shard, samples)?;
    let mut lane = lock(lane);
    lane.waiting.insert(number, part);
    if last {
        lane.end = Some(number + 1);
    }
    while let Some(part) = {
        let next = lane.next;
        lane.waiting.remove(&next)
    } {
        if lane.shard.is_none() {
            lane.shard = Some(line.open(shard)?);
        }
        if let Some(open) = &mut lane.shard {
            line.append(open, part)?;
        }
        lane.next += 1;
    }
    let whole = lane.end == Some(lane.next);
    match lane.shard.take() {
        Some(done) if whole => line.close(shard, done),
        open => {
            lane.shard = open;
            Ok(())
        }
    }
}

/// A poisoned lock means that a thread panicked, which the gate reports.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The chunks of one shard on their way.
struct Lane<L: Line> {
    next: u64,
    end: Option<u64>,
    waiting: BTreeMap<u64, L::Part>,
    shard: Option<L::Shard>,
}

impl<L: Line> Default for Lane<L> {
    fn default() -> Self {
        Lane { next: 0, end: None, waiting: BTreeMap::new(), shard: None }
    }
}

/// Gives out chunks in order, few at a time.
struct Gate {
    chunks: u64,
    /// The most chunks between the oldest one in work and the newest.
    ahead: u64,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    oldest: u64,
    done: BTreeSet<u64>,
    error: Option<(u64, Error)>,
}

impl Gate {
    fn new(chunks: u64, ahead: u64) -> Self {
        Gate { chunks, ahead, state: Mutex::default(), moved: Condvar::new() }
    }

    /// The next chunk, as soon as there is room; `None` at the end and after an error.
    fn enter(&self) -> Option<u64> {
        let full = |s: &mut State| s.error.is_none() && s.next < self.chunks && s.next - s.oldest >= self.ahead;
        let mut state = self.moved.wait_while(lock(&self.state), full).unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() || state.next >= self.chunks {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    fn leave(&self, chunk: u64, result: Result<(), Error>) {
        let mut state = lock(&self.state);
        match result {
            Ok(()) => {
                state.done.insert(chunk);
                while {
                    let oldest = state.oldest;
                    state.done.remove(&oldest)
                } {
                    state.oldest += 1;
                }
            }
            Err(error) => {
                if state.error.as_ref().is_none_or(|(first, _)| chunk < *first) {
                    state.error = Some((chunk, error));
                }
            }
        }
        self.moved.notify_all();
    }

    fn finish(self) -> Result<(), Error> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.error.map_or(Ok(()), |(_, error)| Err(error))
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

    impl Line for Notes {
        type Worker = ();
        type Part = Vec<u64>;
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

        fn append(&self, shard: &mut Vec<u64>, part: Vec<u64>) -> Result<(), Error> {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            shard.extend(part);
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
