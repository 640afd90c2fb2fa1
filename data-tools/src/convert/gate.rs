//! Gives out numbered chunks in order to several threads, only a few at a time.

use crate::error::Error;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Gives out chunks in order, so that few are in work at a time.
pub(super) struct Gate {
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
    /// A gate for `chunks` chunks; no chunk is given out that is `ahead` or more behind the oldest one in work.
    pub fn new(chunks: u64, ahead: u64) -> Self {
        Gate { chunks, ahead, state: Mutex::default(), moved: Condvar::new() }
    }

    /// The number of the next chunk, as soon as there is room; `None` at the end and after an error.
    pub fn enter(&self) -> Option<u64> {
        let full = |s: &mut State| s.error.is_none() && s.next < self.chunks && s.next - s.oldest >= self.ahead;
        let mut state = self.moved.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() || state.next >= self.chunks {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Reports that a chunk is done.
    pub fn leave(&self, chunk: u64) {
        let mut state = self.lock();
        state.done.insert(chunk);
        while {
            let oldest = state.oldest;
            state.done.remove(&oldest)
        } {
            state.oldest += 1;
        }
        self.moved.notify_all();
    }

    /// Reports that a chunk has failed, or its shard behind it: no further chunk is given out.
    pub fn fail(&self, chunk: u64, error: Error) {
        let mut state = self.lock();
        if state.error.as_ref().is_none_or(|(first, _)| chunk < *first) {
            state.error = Some((chunk, error));
        }
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of the first chunk that failed.
    pub fn finish(self) -> Result<(), Error> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.error.map_or(Ok(()), |(_, error)| Err(error))
    }
}
