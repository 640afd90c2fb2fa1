//! A batch that threads are filling, each a piece at a time.

use std::ops::Range;

use crate::error::Error;
use crate::ring::piece::Piece;
use crate::ring::slot::{Filling, Slot};

/// A batch that is being filled.
pub(crate) struct OpenBatch {
    /// Its number in the order.
    pub number: u64,
    slot: Slot,
    /// Values of an image.
    values: usize,
    pieces: usize,
    /// Pieces that were taken.
    taken: usize,
    /// Pieces that are done.
    done: usize,
    /// The error of the first piece in order that failed.
    failed: Option<(usize, Error)>,
}

impl OpenBatch {
    /// With the job in `slot`, which is prepared for so many pieces.
    pub fn new(number: u64, slot: Slot, values: usize, pieces: usize) -> Self {
        Self { number, slot, values, pieces, taken: 0, done: 0, failed: None }
    }

    /// Takes the next piece; no, if all are taken.
    pub fn take(&mut self, piece: &mut Piece) -> bool {
        let index = self.taken;
        if index == self.pieces {
            return false;
        }
        self.taken += 1;
        let samples = self.samples(index);
        // SAFETY: the slot's buffers are not touched before all pieces are back, and no two pieces have the same samples. The batch
        // lives as long: threads hold a reference to what they share, of which it is a part.
        unsafe { piece.lend(&mut self.slot, self.number, index, samples, self.values) };
        true
    }

    /// The samples of a piece: pieces differ by one at most.
    fn samples(&self, index: usize) -> Range<usize> {
        let at = |index: usize| self.slot.job.ids.len() * index / self.pieces;
        at(index)..at(index + 1)
    }

    /// Takes back a piece that is done, or failed; says whether it was the last.
    pub fn give_back(&mut self, piece: &mut Piece, result: Result<Filling, Error>) -> bool {
        piece.give_back();
        std::mem::swap(&mut self.slot.pieces[piece.index], &mut piece.samples);
        match result {
            Ok(filling) => self.slot.fillings.push(filling),
            Err(error) if self.failed.as_ref().is_none_or(|(index, _)| piece.index < *index) => {
                self.failed = Some((piece.index, error));
            }
            Err(_) => {}
        }
        self.done += 1;
        self.done == self.pieces
    }

    /// The slot with the samples of all pieces, between which those that were left out leave no gaps.
    ///
    /// # Errors
    /// That of the first piece in order that failed.
    pub fn close(mut self) -> Result<Slot, Error> {
        if let Some((_, error)) = self.failed {
            return Err(error);
        }
        for index in 0..self.pieces {
            let (from, to, count) = (self.samples(index).start, self.slot.samples.len(), self.slot.pieces[index].len());
            if from > to {
                self.slot.close_gap(from..from + count, to, self.values);
            }
            self.slot.samples.append(&mut self.slot.pieces[index]);
        }
        self.slot.populated = true;
        Ok(self.slot)
    }
}
