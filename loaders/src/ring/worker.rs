//! The life of a loader thread: it takes a piece of an open batch, or opens the next one in a free slot, and fills it. The
//! thread that brings back the last piece of a batch passes it on. The consumer (`loader`) puts the batches in order.

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

/// A message of a thread to the consumer.
pub(crate) struct Filled {
    /// Position in the order; `None` for an error outside of any job.
    pub number: Option<u64>,
    pub result: Result<Slot, Error>,
}

/// One thread and its ends of the channels.
pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    /// Counts the loader's threads, from 0.
    pub thread: usize,
    pub nice: i32,
    /// For tokens that the thread sends: of pieces that it leaves to others, and those that it gives back.
    pub free_in: Sender<Token>,
    pub free_out: Receiver<Token>,
    pub ready: Sender<Filled>,
}

impl Worker {
    /// Fills pieces until a token says to stop, or the order ends; a panic is an error like any other.
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

    /// Passes on an error outside of any job.
    fn fail(&self, error: Error) {
        // a failure means that the consumer has gone
        let _ = self.ready.send(Filled { number: None, result: Err(error) });
    }

    /// The next piece to fill; `None` if the thread is to end. `ahead` is the one whose records were requested already.
    fn next(&self, ahead: &mut Option<Piece>, state: &mut ThreadState) -> Result<Option<Piece>, Error> {
        if let Some(piece) = ahead.take() {
            return Ok(Some(piece));
        }
        let start = Instant::now();
        let Ok(Token::Work) = self.free_out.recv() else { return Ok(None) };
        self.shared.totals.add_slots(start.elapsed());
        self.take(state)
    }

    /// Takes the piece for which a token has been received; `None` after the last.
    fn take(&self, state: &mut ThreadState) -> Result<Option<Piece>, Error> {
        let mut piece = state.pieces.pop().unwrap_or_default();
        let taken = caught(self.thread, || Ok(self.shared.take(&mut piece, &self.free_in)))?;
        Ok(taken.then_some(piece))
    }

    /// Fills a piece, and passes its batch on if that was the last one; says whether the thread goes on. It does so after an error, too:
    /// the other pieces of the batch may hold one that comes before.
    fn work(&self, mut piece: Piece, ahead: &mut Option<Piece>, state: &mut ThreadState) -> bool {
        let start = Instant::now();
        let outcome = self.fill(&mut piece, ahead, state);
        state.fetches.extend(piece.fetch.take());
        let result = match outcome {
            Ok(Outcome::Filled) => Ok(Filling { thread: self.thread, start, took: start.elapsed() }),
            Ok(Outcome::Stopped) => return false,
            Err(error) => {
                // a panic may have left it in any condition
                *state = ThreadState::default();
                Err(error)
            }
        };
        let batch = self.shared.give_back(&mut piece, result);
        state.pieces.push(piece);
        batch.is_none_or(|batch| self.pass_on(batch))
    }

    /// Passes on a batch of which all pieces are back; no, if the consumer has gone.
    fn pass_on(&self, batch: OpenBatch) -> bool {
        let number = Some(batch.number);
        let result = caught(self.thread, || {
            let mut slot = batch.close()?;
            finish(&self.shared, &mut slot);
            Ok(slot)
        });
        self.ready.send(Filled { number, result }).is_ok()
    }

    /// Fills a piece, after requesting the records of the next one if there is one.
    fn fill(&self, piece: &mut Piece, ahead: &mut Option<Piece>, state: &mut ThreadState) -> Result<Outcome, Error> {
        caught(self.thread, || {
            request(&self.shared, piece, state)?;
            let looks_ahead = self.shared.shards.plan().looks_ahead();
            // nothing may fail before the token has had its effect: a lost one would leave a thread waiting
            match looks_ahead.then(|| self.free_out.try_recv().ok()).flatten() {
                Some(Token::Work) => {
                    *ahead = self.take(state)?;
                    // what fails here fails again when that piece is filled, and is reported in its turn
                    let _ = ahead.as_mut().map(|next| request_ahead(&self.shared, next, state));
                }
                // for this thread or another, when it next waits
                Some(Token::Stop) => drop(self.free_in.try_send(Token::Stop)),
                None => {}
            }
            fill(&self.shared, piece, state)
        })
    }
}

/// Turns a panic of `f` into an error.
fn caught<T>(thread: usize, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guarded_with(f, |message| Error::Panic { thread, message })
}
