//! The work of a loader's threads: the order, how much of it has been handed out, and the batches that are being filled.

use crate::error::Error;
use crate::order::{Job, Order};
use crate::ring::open_batch::OpenBatch;
use crate::ring::piece::Piece;
use crate::ring::slot::Filling;

/// What is handed out.
pub(crate) struct Jobs {
    order: Box<dyn Order>,
    /// Jobs handed out.
    count: u64,
    ended: bool,
    /// Batches of which pieces are at work or not taken yet.
    open: Vec<OpenBatch>,
}

impl Jobs {
    /// All jobs of an order.
    pub fn new(order: Box<dyn Order>) -> Self {
        Self { order, count: 0, ended: false, open: Vec::new() }
    }

    /// Puts the next job into `job` and returns its number; `None` after the last.
    pub fn take(&mut self, job: &mut Job) -> Option<u64> {
        if self.ended || !self.order.fill(job) {
            self.ended = true;
            return None;
        }
        self.count += 1;
        Some(self.count - 1)
    }

    /// The number of jobs, once the order has ended.
    pub fn ended_after(&self) -> Option<u64> {
        self.ended.then_some(self.count)
    }

    /// Takes a piece of an open batch, of the earliest that has any left; no, if none has.
    pub fn take_piece(&mut self, piece: &mut Piece) -> bool {
        self.open.iter_mut().any(|batch| batch.take(piece))
    }

    /// Opens a batch, of which a thread takes the first piece.
    pub fn open(&mut self, mut batch: OpenBatch, piece: &mut Piece) {
        batch.take(piece);
        self.open.push(batch);
    }

    /// Takes back a piece, and gives its batch if that was the last.
    pub fn give_back(&mut self, piece: &mut Piece, result: Result<Filling, Error>) -> Option<OpenBatch> {
        let at = self.open.iter().position(|batch| batch.number == piece.number)?;
        self.open[at].give_back(piece, result).then(|| self.open.remove(at))
    }
}
