//! What all threads of a loader share: the memory of batches as slots, and the list of those that are free.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::mix::Mix;
use crate::order::Job;
use crate::ring::batch::{PixelFormat, Samples};
use crate::ring::piece::{OpenBatch, Piece};
use crate::ring::reader::ReadRequest;
use crate::ring::stats::Totals;
use crate::ring::worker::{Division, Jobs};
use crate::storage::shard::OpenShards;
use crate::sync::{AtomicBool, Mutex, Sender};
use crate::transform::Pipeline;

/// One batch's memory. It grows to the largest batch and then stays.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub job: Job,
    /// (N, C, H, W); at least as long as the job needs, if images come as floats.
    pub images: Vec<f32>,
    /// (N, H, W, C); at least as long as the job needs, if images come as bytes.
    pub pixels: Vec<u8>,
    /// Whether `images` have pages of memory by now.
    pub populated: bool,
    /// Its samples, without those that were left out.
    pub samples: Samples,
    /// Those of each piece, until all are there.
    pub pieces: Vec<Samples>,
    /// Whether samples may have several labels.
    pub multi_label: bool,
    /// How the images are mixed with each other, if they are.
    pub mix: Option<Mix>,
    /// Who filled its pieces, and when.
    pub fillings: Vec<Filling>,
}

/// The time in which a thread filled a batch, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Number of the thread, from 0.
    pub thread: usize,
    /// When it began.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Slot {
    /// Makes room for `values` values or bytes of images in `pieces` pieces, and forgets the previous batch.
    pub fn prepare(&mut self, values: usize, as_bytes: bool, pieces: usize) {
        // fresh pages of the system are zero already; they are populated as they are written
        if as_bytes && self.pixels.len() < values {
            self.pixels = vec![0; values];
        } else if !as_bytes && self.images.len() < values {
            (self.images, self.populated) = (vec![0.0; values], false);
        }
        self.samples.clear();
        self.pieces.resize_with(pieces.max(self.pieces.len()), Samples::default);
        self.fillings.clear();
    }

    /// Moves the images of these samples, of so many values each, to sample `to`, which is before them.
    pub fn close_gap(&mut self, samples: Range<usize>, to: usize, values: usize) {
        let (from, to) = (samples.start * values..samples.end * values, to * values);
        if from.end <= self.images.len() {
            self.images.copy_within(from.clone(), to);
        }
        if from.end <= self.pixels.len() {
            self.pixels.copy_within(from, to);
        }
    }
}

/// The free slots. The one returned last is taken first: its memory is in the caches, and if few are ever in use at once, the memory
/// of the others is never touched.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    slots: Mutex<Vec<Slot>>,
}

impl FreeSlots {
    /// Adds a slot and sends a token for it to the threads.
    pub fn add(&self, slot: Slot, tokens: &Sender<Token>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        // the channel has room for all tokens; a failure means that the threads have ended
        let _ = tokens.try_send(Token::Work);
    }

    /// Takes a slot; the caller has received a token for it.
    pub fn take(&self) -> Slot {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

/// A message to the threads that fill slots.
pub(crate) enum Token {
    /// There is a piece that no thread has taken, or a free slot: as many tokens as there are of both.
    Work,
    /// One thread is to end.
    Stop,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_used_last_is_taken_first() {
        let (free, tokens) = crossbeam_channel::bounded(3);
        let slots = FreeSlots::default();
        for values in 1..=3 {
            slots.add(Slot { images: vec![0.0; values], ..Slot::default() }, &free);
        }
        let used = slots.take();
        slots.add(used, &free);
        assert_eq!([slots.take(), slots.take(), slots.take()].map(|slot| slot.images.len()), [3, 2, 1]);
        assert_eq!(tokens.len(), 3, "a token for each, and no room for more");
    }
}
