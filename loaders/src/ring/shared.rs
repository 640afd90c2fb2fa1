//! What all threads of a loader share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::error::Error;
use crate::ring::division::Division;
use crate::ring::jobs::Jobs;
use crate::ring::open_batch::OpenBatch;
use crate::ring::piece::Piece;
use crate::ring::pixel_format::PixelFormat;
use crate::ring::reader::ReadRequest;
use crate::ring::slot::{Filling, FreeSlots, Token};
use crate::ring::totals::Totals;
use crate::storage::open_shards::OpenShards;
use crate::sync::{AtomicBool, Mutex, Sender};
use crate::transform::Pipeline;

/// What all threads of a loader share.
pub(crate) struct Shared {
    pub shards: Arc<OpenShards>,
    pub pipeline: Pipeline,
    /// After a panic in the order's code its thread reports the panic and the consumer stops the others, so a poisoned lock does no harm.
    pub jobs: Mutex<Jobs>,
    pub free: Arc<FreeSlots>,
    pub totals: Totals,
    pub format: PixelFormat,
    /// Whether a record that cannot be used is left out.
    pub skip: bool,
    pub division: Division,
    /// To the reader threads.
    pub requests: Sender<ReadRequest>,
    pub stop: AtomicBool,
}

impl Shared {
    /// Tells threads to end at the next sample.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether threads are to end.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends a request to the reader threads.
    pub fn request(&self, request: ReadRequest) {
        // a failure means that there are none, or none left
        let _ = self.requests.send(request);
    }

    /// The number of jobs, once the order has ended.
    pub fn ended_after(&self) -> Option<u64> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).ended_after()
    }

    /// Takes the next piece of work, for a token that was received: of a batch that is open, else of the next job, for which there is a
    /// free slot then. Requests the shards that come up soon, and sends tokens for the other pieces. No, after the last: then the slot
    /// goes back.
    pub fn take(&self, piece: &mut Piece, tokens: &Sender<Token>) -> bool {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.take_piece(piece) {
            return true;
        }
        let mut slot = self.free.take();
        let Some(number) = jobs.take(&mut slot.job) else {
            // so that a thread which waits for a token learns of the end, too
            self.free.add(slot, tokens);
            return false;
        };
        slot.job.ahead.drain(..).filter(|_| self.reads()).for_each(|shard| self.request(ReadRequest::Shard(shard)));
        let (samples, values) = (slot.job.ids.len(), self.values());
        let pieces = self.division.of(samples);
        slot.prepare(samples * values, matches!(self.format, PixelFormat::Bytes), pieces);
        jobs.open(OpenBatch::new(number, slot, values, pieces), piece);
        // the channel has room for all tokens, and this thread has a receiver
        (1..pieces).for_each(|_| drop(tokens.try_send(Token::Work)));
        true
    }

    /// Takes back a piece that is done, or failed; gives its batch if it was the last.
    pub fn give_back(&self, piece: &mut Piece, result: Result<Filling, Error>) -> Option<OpenBatch> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).give_back(piece, result)
    }

    /// Values of an image that is made; 0, if none is.
    fn values(&self) -> usize {
        if self.reads() { self.pipeline.output().values() } else { 0 }
    }

    /// Whether records are read at all.
    pub fn reads(&self) -> bool {
        !matches!(self.format, PixelFormat::CropRects { .. })
    }
}
