//! The state that all threads of a loader share. It has the order, how much of it has been handed out, the batches that
//! are being filled, and how batches are divided into pieces.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::error::Error;
use crate::order::{Job, Order};
use crate::ring::batch::PixelFormat;
use crate::ring::piece::{OpenBatch, Piece};
use crate::ring::reader::ReadRequest;
use crate::ring::slot::{Filling, FreeSlots, Token};
use crate::ring::stats::Totals;
use crate::storage::read_plan::OpenShards;
use crate::sync::{AtomicBool, Mutex, Sender};
use crate::transform::Pipeline;

/// The state that all threads of a loader share.
pub(crate) struct Shared {
    pub shards: Arc<OpenShards>,
    pub pipeline: Pipeline,
    /// A poisoned lock is harmless: if the order's code panics, its thread reports the panic and the consumer stops the
    /// other threads.
    pub jobs: Mutex<Jobs>,
    pub free: Arc<FreeSlots>,
    pub totals: Totals,
    pub format: PixelFormat,
    /// True if unusable records are left out of their batches.
    pub skip: bool,
    pub division: Division,
    /// Sends requests to the reader threads.
    pub requests: Sender<ReadRequest>,
    pub stop: AtomicBool,
}

impl Shared {
    /// Tells the threads to end at the next sample.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends a request to the reader threads.
    pub fn request(&self, request: ReadRequest) {
        // Sending fails only if there are no readers, or if they have ended.
        let _ = self.requests.send(request);
    }

    /// Returns the number of jobs, or `None` while the order may still return jobs.
    pub fn ended_after(&self) -> Option<u64> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).ended_after()
    }

    /// Takes the next piece of work. Called after this thread has received a token. If there is an open batch, takes a
    /// piece of it. Otherwise opens the next job in a free slot and takes its first piece. The token guarantees that
    /// there is such a slot. Requests the shards that will be needed soon, and sends tokens for the other pieces. After
    /// the last job, gives the slot back and returns false.
    pub fn take(&self, piece: &mut Piece, tokens: &Sender<Token>) -> bool {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.take_piece(piece) {
            return true;
        }
        let mut slot = self.free.take();
        let Some(number) = jobs.take(&mut slot.job) else {
            // The token for this slot wakes another waiting thread, which then also finds that the order has ended.
            self.free.add(slot, tokens);
            return false;
        };
        slot.job.ahead.drain(..).filter(|_| self.reads()).for_each(|shard| self.request(ReadRequest::Shard(shard)));
        let (samples, elements) = (slot.job.ids.len(), self.format.elements(self.pipeline.output().values()));
        let pieces = self.division.piece_count(samples);
        slot.prepare(samples * elements, matches!(self.format, PixelFormat::Bytes(_)), pieces);
        jobs.open(OpenBatch::new(number, slot, elements, pieces), piece);
        // The channel has room for all tokens, and this thread has a receiver.
        (1..pieces).for_each(|_| drop(tokens.try_send(Token::Work)));
        true
    }

    /// Takes back a piece that is done or failed. Returns its batch if it was the last piece.
    pub fn give_back(&self, piece: &mut Piece, result: Result<Filling, Error>) -> Option<OpenBatch> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).give_back(piece, result)
    }

    /// Returns true if images are made from records. Returns false if batches contain only crop rectangles, because the
    /// consumer has the images.
    pub fn reads(&self) -> bool {
        !matches!(self.format, PixelFormat::CropRects { .. })
    }
}

/// The jobs and the batches that are being filled.
pub(crate) struct Jobs {
    order: Box<dyn Order>,
    /// Number of jobs that were handed out.
    count: u64,
    ended: bool,
    /// Batches with pieces that are being filled or are not taken yet.
    open: Vec<OpenBatch>,
}

impl Jobs {
    pub fn new(order: Box<dyn Order>) -> Self {
        Self { order, count: 0, ended: false, open: Vec::new() }
    }

    /// Puts the next job into `job` and returns its number. Returns `None` after the last.
    pub fn take(&mut self, job: &mut Job) -> Option<u64> {
        if self.ended || !self.order.fill(job) {
            self.ended = true;
            return None;
        }
        self.count += 1;
        Some(self.count - 1)
    }

    /// Returns the number of jobs, or `None` while the order may still return jobs.
    pub fn ended_after(&self) -> Option<u64> {
        self.ended.then_some(self.count)
    }

    /// Takes a piece of the first open batch that has pieces left. Returns false if there are no pieces left.
    pub fn take_piece(&mut self, piece: &mut Piece) -> bool {
        self.open.iter_mut().any(|batch| batch.take(piece))
    }

    /// Opens a batch and takes its first piece.
    pub fn open(&mut self, mut batch: OpenBatch, piece: &mut Piece) {
        batch.take(piece);
        self.open.push(batch);
    }

    /// Takes back a piece. Returns its batch if it was the last piece.
    pub fn give_back(&mut self, piece: &mut Piece, result: Result<Filling, Error>) -> Option<OpenBatch> {
        let at = self.open.iter().position(|batch| batch.number == piece.number)?;
        self.open[at].give_back(piece, result).then(|| self.open.remove(at))
    }
}

/// How batches are divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Maximum number of pieces per batch.
    pub pieces: usize,
    /// Minimum number of samples per piece.
    pub samples: usize,
}

impl Division {
    /// Returns the number of pieces for a batch with this many samples.
    pub fn piece_count(self, samples: usize) -> usize {
        (samples / self.samples).clamp(1, self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_divided_into_pieces_of_a_minimum_size() {
        let division = Division { pieces: 4, samples: 3 };
        let pieces = [0, 1, 3, 4, 9, 10, 1000].map(|samples| division.piece_count(samples));
        assert_eq!(pieces, [1, 1, 1, 1, 3, 3, 4]);
        assert_eq!(Division { pieces: 1, samples: 1 }.piece_count(64), 1);
    }
}
