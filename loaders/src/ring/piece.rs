//! Batches that threads fill together, and their pieces. A piece is a range of samples that one thread makes, with the
//! memory for their images, which is lent to the thread.

use std::ops::Range;

use crate::error::Error;
use crate::order::Job;
use crate::ring::slot::{Filling, Samples, Slot};
use crate::storage::fetch::Fetch;
use crate::storage::mapping::populate_fresh;

/// Number of values to populate at a time: 1 MiB. While the kernel populates pages, no other thread can map memory.
const STEP: usize = 1 << 18;

/// A part of a buffer, lent to one thread.
#[derive(Debug)]
struct Part<T> {
    start: *mut T,
    length: usize,
}

/// The memory for a piece's images.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    images: Part<f32>,
    pixels: Part<u8>,
    /// Number of elements per image in the buffer that the batch uses.
    each: usize,
    /// Number of image values in populated pages.
    populated: usize,
}

#[derive(Default)]
pub(crate) struct Piece {
    /// The batch's number in the order.
    pub number: u64,
    /// Index of the piece in its batch.
    pub index: usize,
    /// The batch's job, but with the ids of this piece's samples only.
    pub job: Job,
    pub memory: Memory,
    /// The results for the samples.
    pub samples: Samples,
    /// The records, if reader threads fetch them.
    pub fetch: Option<Fetch>,
}

// SAFETY: a part represents a `&mut [T]` and is used like it. `&mut [T]` is `Send`.
unsafe impl<T: Send> Send for Part<T> {}
// SAFETY: the values cannot be accessed through a shared reference to a part.
unsafe impl<T: Send> Sync for Part<T> {}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { start: std::ptr::NonNull::dangling().as_ptr(), length: 0 }
    }
}

impl<T> Part<T> {
    /// Refers to these values of a buffer. The range is clipped to the buffer's length.
    fn of(buffer: &mut Vec<T>, values: Range<usize>) -> Self {
        let (start, end) = (values.start.min(buffer.len()), values.end.min(buffer.len()));
        // Do not create a mutable slice of the whole buffer: it would also cover the parts that other threads write to.
        Self { start: buffer.as_mut_ptr().wrapping_add(start), length: end.saturating_sub(start) }
    }

    /// Returns the values.
    ///
    /// # Safety
    ///
    /// The buffer must not have moved, and no other thread may use these values at the same time.
    unsafe fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: the range is inside the buffer, which the caller keeps alive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Memory {
    /// Populates the pages of image `index` and some pages after it, if the images are floats.
    pub fn populate(&mut self, index: usize) {
        // SAFETY: the memory is lent to this piece until `give_back` (see `Piece::lend`). After that, the part is
        // empty.
        let images = unsafe { self.images.as_mut() };
        let end = (index + 1) * self.each;
        if end > self.populated && end <= images.len() {
            let ahead = end.max(self.populated + STEP).min(images.len());
            populate_fresh(&mut images[self.populated..ahead]);
            self.populated = ahead;
        }
    }

    /// Returns the memory for image `index` of the piece as floats.
    pub fn values(&mut self, index: usize) -> &mut [f32] {
        // SAFETY: as in `populate`.
        let images = unsafe { self.images.as_mut() };
        &mut images[index * self.each..][..self.each]
    }

    /// Returns the memory for image `index` of the piece as bytes.
    pub fn bytes(&mut self, index: usize) -> &mut [u8] {
        // SAFETY: as in `populate`.
        let pixels = unsafe { self.pixels.as_mut() };
        &mut pixels[index * self.each..][..self.each]
    }
}

impl Piece {
    /// Sets this to piece `index` of batch `number`, with these samples of the slot's job. An image has `each` elements.
    ///
    /// # Safety
    ///
    /// Until the piece gives the memory back, the slot's buffers must not move, and no other piece may have these
    /// samples.
    pub unsafe fn lend(&mut self, slot: &mut Slot, number: u64, index: usize, samples: Range<usize>, each: usize) {
        let Job { epoch, step, worker, .. } = slot.job;
        let (mut ids, mut copies) = (std::mem::take(&mut self.job.ids), std::mem::take(&mut self.job.copies));
        ids.clear();
        ids.extend_from_slice(&slot.job.ids[samples.clone()]);
        copies.clear();
        copies.extend_from_slice(slot.job.copies.get(samples.clone()).unwrap_or_default());
        self.job = Job { epoch, step, worker, ids, copies, ahead: Vec::new() };
        (self.number, self.index) = (number, index);
        let values = samples.start * each..samples.end * each;
        let images = Part::of(&mut slot.images, values.clone());
        let populated = if slot.populated { images.length } else { 0 };
        self.memory = Memory { images, pixels: Part::of(&mut slot.pixels, values), each, populated };
        self.samples.clear();
    }

    pub fn give_back(&mut self) {
        self.memory = Memory::default();
    }
}

/// A batch that is being filled.
pub(crate) struct OpenBatch {
    /// Number of the batch in the order.
    pub number: u64,
    slot: Slot,
    /// Number of elements per image in the buffer that the batch uses: floats or bytes.
    elements: usize,
    pieces: usize,
    /// Number of pieces that threads have taken.
    taken: usize,
    /// Number of pieces that are done.
    done: usize,
    /// Index and error of the first failed piece in order.
    failed: Option<(usize, Error)>,
}

impl OpenBatch {
    /// Creates a batch for the job in `slot`, which is prepared for this many pieces.
    pub fn new(number: u64, slot: Slot, elements: usize, pieces: usize) -> Self {
        Self { number, slot, elements, pieces, taken: 0, done: 0, failed: None }
    }

    /// Takes the next piece. Returns false if all are taken.
    pub fn take(&mut self, piece: &mut Piece) -> bool {
        let index = self.taken;
        if index == self.pieces {
            return false;
        }
        self.taken += 1;
        let samples = self.samples(index);
        // SAFETY: the slot's buffers are not used until all pieces are back, and no two pieces have the same samples.
        // The batch lives long enough, because it is part of the shared state that all threads hold a reference to.
        unsafe { piece.lend(&mut self.slot, self.number, index, samples, self.elements) };
        true
    }

    /// Returns the samples of a piece. The sizes of pieces differ by at most one.
    fn samples(&self, index: usize) -> Range<usize> {
        let at = |index: usize| self.slot.job.ids.len() * index / self.pieces;
        at(index)..at(index + 1)
    }

    /// Takes back a piece that is done or failed. Returns true if it was the last.
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

    /// Returns the slot with the samples of all pieces. Samples that were left out leave no gap.
    ///
    /// # Errors
    ///
    /// Returns the error of the first failed piece in order.
    pub fn close(mut self) -> Result<Slot, Error> {
        if let Some((_, error)) = self.failed {
            return Err(error);
        }
        for index in 0..self.pieces {
            let (from, to, count) = (self.samples(index).start, self.slot.samples.len(), self.slot.pieces[index].len());
            if from > to {
                self.slot.close_gap(from..from + count, to, self.elements);
            }
            self.slot.samples.append(&mut self.slot.pieces[index]);
        }
        self.slot.populated = true;
        Ok(self.slot)
    }
}
