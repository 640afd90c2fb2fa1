//! The main loop of a loader thread. The thread takes a piece of an open batch, or opens the next batch in a free slot,
//! and fills it. The thread that returns the last piece of a batch sends the batch to the consumer (`loader`), which
//! puts batches in order.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::guarded::guarded_with;
use crate::ring::fill::{Outcome, ThreadState, fill, finish, request, request_ahead};
use crate::ring::nice;
use crate::ring::piece::{OpenBatch, Piece};
use crate::ring::shared::Shared;
use crate::ring::slot::{Filling, Slot, Token};
use crate::sync::{Receiver, Sender};

/// A message from a thread to the consumer.
pub(crate) struct BatchMessage {
    /// Position in the order. `None` for an error that does not belong to a job.
    pub number: Option<u64>,
    pub result: Result<Slot, Error>,
}

pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    /// Number of the thread, from 0.
    pub thread: usize,
    pub nice: i32,
    /// Sends tokens: one for each piece that other threads can take, and tokens that this thread received but did not
    /// use.
    pub free_in: Sender<Token>,
    pub free_out: Receiver<Token>,
    pub ready: Sender<BatchMessage>,
}

impl Worker {
    /// Fills pieces until a token says to stop or the order ends. A panic is treated like any other error.
    pub fn run(&self) {
        if self.nice > 0
            && let Err(source) = nice::lower_current_thread(self.nice)
        {
            return self.fail(Error::Nice { nice: self.nice, source });
        }
        let mut state = ThreadState::default();
        let mut ahead = None;
        loop {
            match self.next(&mut ahead, &mut state) {
                Ok(Some(piece)) => {
                    if !self.work(piece, &mut ahead, &mut state) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Sends the consumer an error that does not belong to a job.
    fn fail(&self, error: Error) {
        // Sending fails only if the consumer is gone.
        let _ = self.ready.send(BatchMessage { number: None, result: Err(error) });
    }

    /// Returns the next piece to fill, or `None` if the thread should end. `ahead` is a piece whose records have
    /// already been requested.
    fn next(&self, ahead: &mut Option<Piece>, state: &mut ThreadState) -> Result<Option<Piece>, Error> {
        if let Some(piece) = ahead.take() {
            return Ok(Some(piece));
        }
        let start = Instant::now();
        let Ok(Token::Work) = self.free_out.recv() else { return Ok(None) };
        self.shared.totals.add_slots(start.elapsed());
        self.take(state)
    }

    /// Takes the piece for a token that has been received. Returns `None` after the last piece.
    fn take(&self, state: &mut ThreadState) -> Result<Option<Piece>, Error> {
        let mut piece = state.pieces.pop().unwrap_or_default();
        let taken = catch_panic(self.thread, || Ok(self.shared.take(&mut piece, &self.free_in)))?;
        Ok(taken.then_some(piece))
    }

    /// Fills a piece, and sends its batch to the consumer if it was the last piece. Returns true if the thread should
    /// continue. It also continues after an error, because an earlier piece of the batch may fail too, and the first
    /// error in order is reported.
    fn work(&self, mut piece: Piece, ahead: &mut Option<Piece>, state: &mut ThreadState) -> bool {
        let start = Instant::now();
        let outcome = self.fill(&mut piece, ahead, state);
        state.fetches.extend(piece.fetch.take());
        let result = match outcome {
            Ok(Outcome::Filled) => Ok(Filling { thread: self.thread, start, took: start.elapsed() }),
            Ok(Outcome::Stopped) => return false,
            Err(error) => {
                // After a panic, the state may be inconsistent.
                *state = ThreadState::default();
                Err(error)
            }
        };
        let batch = self.shared.give_back(&mut piece, result);
        state.pieces.push(piece);
        batch.is_none_or(|batch| self.pass_on(batch))
    }

    /// Sends a complete batch to the consumer. Returns false if the consumer is gone.
    fn pass_on(&self, batch: OpenBatch) -> bool {
        let number = Some(batch.number);
        let result = catch_panic(self.thread, || {
            let mut slot = batch.close()?;
            finish(&self.shared, &mut slot);
            Ok(slot)
        });
        self.ready.send(BatchMessage { number, result }).is_ok()
    }

    /// Fills a piece. Before that, requests the records of the next piece if there is one.
    fn fill(&self, piece: &mut Piece, ahead: &mut Option<Piece>, state: &mut ThreadState) -> Result<Outcome, Error> {
        catch_panic(self.thread, || {
            request(&self.shared, piece, state)?;
            let looks_ahead = self.shared.shards.plan().looks_ahead();
            // Nothing may fail between receiving a token and acting on it. A lost token would leave a thread waiting.
            match looks_ahead.then(|| self.free_out.try_recv().ok()).flatten() {
                Some(Token::Work) => {
                    *ahead = self.take(state)?;
                    // An error here happens again when that piece is filled, and is reported at its position in the
                    // order.
                    let _ = ahead.as_mut().map(|next| request_ahead(&self.shared, next, state));
                }
                // The thread that waits for a token next receives it: this one or another.
                Some(Token::Stop) => drop(self.free_in.try_send(Token::Stop)),
                None => {}
            }
            fill(&self.shared, piece, state)
        })
    }
}

/// Turns a panic of `f` into an error.
fn catch_panic<T>(thread: usize, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guarded_with(f, |message| Error::Panic { thread, message })
}
