//! The part of crossbeam's channels that the tested code uses, implemented with loom's mutex and condition variable.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use loom::sync::{Condvar, Mutex, MutexGuard};

pub struct Sender<T>(Arc<Channel<T>>);
pub struct Receiver<T>(Arc<Channel<T>>);

/// The reason why nothing was received.
#[derive(Debug, PartialEq, Eq)]
pub enum TryRecvError {
    Empty,
    Disconnected,
}

/// The value that could not be sent because the channel is full or has no receiver.
#[derive(Debug)]
pub struct SendError<T>(pub T);

struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    room: usize,
    senders: usize,
    receivers: usize,
}

pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::new(), room, senders: 1, receivers: 1 };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

impl<T> Channel<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, value: T) -> Result<(), SendError<T>> {
        if state.receivers == 0 || state.queue.len() >= state.room {
            return Err(SendError(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}

impl<T> Sender<T> {
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state();
        while state.receivers > 0 && state.queue.len() >= state.room {
            state = self.0.wait(state);
        }
        self.0.put(state, value)
    }

    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.put(self.0.state(), value)
    }
}

impl<T> Receiver<T> {
    /// Waits for a value or until all senders are gone.
    pub fn recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state();
        while state.queue.is_empty() && state.senders > 0 {
            state = self.0.wait(state);
        }
        self.take(state)
    }

    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.take(self.0.state())
    }

    pub fn len(&self) -> usize {
        self.0.state().queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self, mut state: MutexGuard<'_, State<T>>) -> Result<T, TryRecvError> {
        let ended = state.senders == 0;
        let value = state.queue.pop_front();
        drop(state);
        if value.is_some() {
            self.0.changed.notify_all();
        }
        value.ok_or(if ended { TryRecvError::Disconnected } else { TryRecvError::Empty })
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.senders -= 1;
        let last = state.senders == 0;
        drop(state);
        if last {
            self.0.changed.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receivers -= 1;
        // if this was the last receiver, drop the values that are left in the queue
        let rest = if state.receivers == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        drop(rest);
        self.0.changed.notify_all();
    }
}
