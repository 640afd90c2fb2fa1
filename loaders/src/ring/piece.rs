//! Batches that several threads fill, and the pieces of them: samples in a row that one thread makes, and the memory that is lent to
//! it for their images.

use std::ops::Range;

use crate::error::Error;
use crate::order::Job;
use crate::ring::slot::{Filling, Samples, Slot};
use crate::storage::fetch::Fetch;
use crate::storage::mapping::populate_fresh;

/// Values of a piece that are populated at a time: 1 MiB, during which no other thread can map memory.
const STEP: usize = 1 << 18;

/// A part of a buffer, lent to one thread.
#[derive(Debug)]
struct Part<T> {
    start: *mut T,
    length: usize,
}

/// The memory of a piece's images.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    images: Part<f32>,
    pixels: Part<u8>,
    /// Values of an image.
    each: usize,
    /// How many values of the images have their pages populated.
    populated: usize,
}

/// A piece of a batch.
#[derive(Default)]
pub(crate) struct Piece {
    /// The batch's number in the order.
    pub number: u64,
    /// Which of its pieces.
    pub index: usize,
    /// The batch's job, with the ids of these samples alone.
    pub job: Job,
    pub memory: Memory,
    /// What came of it.
    pub samples: Samples,
    /// Its records, if reader threads fetch them.
    pub fetch: Option<Fetch>,
}

// SAFETY: a part is used as the `&mut [T]` that it stands for, which can be sent; shared, it gives nothing.
unsafe impl<T: Send> Send for Part<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Part<T> {}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { start: std::ptr::NonNull::dangling().as_ptr(), length: 0 }
    }
}

impl<T> Part<T> {
    /// These values of a buffer, as far as it has them.
    fn of(buffer: &mut Vec<T>, values: Range<usize>) -> Self {
        let (start, end) = (values.start.min(buffer.len()), values.end.min(buffer.len()));
        // not of a slice, which would claim the parts of others, too
        Self { start: buffer.as_mut_ptr().wrapping_add(start), length: end.saturating_sub(start) }
    }

    /// The values.
    ///
    /// # Safety
    /// The buffer is where it was, and nobody else uses these values of it meanwhile.
    unsafe fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: inside of the buffer, which the caller keeps.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Memory {
    /// Populates the pages of image `index` of the piece, if it comes as floats, and some more.
    pub fn populate(&mut self, index: usize) {
        // SAFETY: lent to this piece until it gives it back (see `Piece::lend`); after that there is none.
        let images = unsafe { self.images.as_mut() };
        let end = (index + 1) * self.each;
        if end > self.populated && end <= images.len() {
            let ahead = end.max(self.populated + STEP).min(images.len());
            populate_fresh(&mut images[self.populated..ahead]);
            self.populated = ahead;
        }
    }

    /// Room for image `index` of the piece as floats.
    pub fn values(&mut self, index: usize) -> &mut [f32] {
        // SAFETY: as above.
        let images = unsafe { self.images.as_mut() };
        &mut images[index * self.each..][..self.each]
    }

    /// The same as bytes.
    pub fn bytes(&mut self, index: usize) -> &mut [u8] {
        // SAFETY: as above.
        let pixels = unsafe { self.pixels.as_mut() };
        &mut pixels[index * self.each..][..self.each]
    }
}

impl Piece {
    /// Becomes piece `index` of batch `number`: these samples of the slot's job, with images of `each` values.
    ///
    /// # Safety
    /// Until the piece gives the memory back, the slot's buffers stay where they are, and no other piece has these samples.
    pub unsafe fn lend(&mut self, slot: &mut Slot, number: u64, index: usize, samples: Range<usize>, each: usize) {
        let Job { epoch, step, worker, first, repeats, .. } = slot.job;
        let mut ids = std::mem::take(&mut self.job.ids);
        ids.clear();
        ids.extend_from_slice(&slot.job.ids[samples.clone()]);
        self.job = Job { epoch, step, worker, ids, first: first + samples.start as u64, repeats, ahead: Vec::new() };
        (self.number, self.index) = (number, index);
        let values = samples.start * each..samples.end * each;
        let images = Part::of(&mut slot.images, values.clone());
        let populated = if slot.populated { images.length } else { 0 };
        self.memory = Memory { images, pixels: Part::of(&mut slot.pixels, values), each, populated };
        self.samples.clear();
    }

    /// Gives the memory back.
    pub fn give_back(&mut self) {
        self.memory = Memory::default();
    }
}

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
