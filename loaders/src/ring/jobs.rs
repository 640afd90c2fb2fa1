//! The work of a loader's threads: the order, how much of it has been handed out, the batches that are being filled, and how batches
//! are divided into pieces.

use crate::error::Error;
use crate::order::{Job, Order};
use crate::ring::piece::{OpenBatch, Piece};
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

/// How batches are divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Pieces of a batch, at most.
    pub pieces: usize,
    /// Samples of a piece, at least.
    pub samples: usize,
}

impl Division {
    /// Pieces of a batch of so many samples.
    pub fn of(self, samples: usize) -> usize {
        (samples / self.samples).clamp(1, self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_batch() {
        let division = Division { pieces: 4, samples: 3 };
        let pieces = [0, 1, 3, 4, 9, 10, 1000].map(|samples| division.of(samples));
        assert_eq!(pieces, [1, 1, 1, 1, 3, 3, 4]);
        assert_eq!(Division { pieces: 1, samples: 1 }.of(64), 1);
    }
}
