//! The memory of batches as slots, and the list of those that are free.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::label_sets::LabelSets;
use crate::mix::Mix;
use crate::order::Job;
use crate::sync::{Mutex, Sender};
use crate::transform::CropRect;

/// Samples in a row.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub ids: Vec<u64>,
    /// One a sample.
    pub labels: Vec<u32>,
    /// All labels of each sample, where there may be several.
    pub label_sets: LabelSets,
    /// One a sample, if images come as crop rectangles.
    pub crop_rects: Vec<CropRect>,
    /// Bytes of the records read.
    pub bytes: u64,
    /// The errors of the samples that were left out.
    pub skipped: Vec<Error>,
}

impl Samples {
    /// How many there are, without those that were left out.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Forgets all of them and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.labels.clear();
        self.label_sets.clear();
        self.crop_rects.clear();
        self.bytes = 0;
        self.skipped.clear();
    }

    /// Adds those of `other` behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.ids.append(&mut other.ids);
        self.labels.append(&mut other.labels);
        other.label_sets.iter().for_each(|classes| self.label_sets.push(classes.iter().copied()));
        self.crop_rects.append(&mut other.crop_rects);
        self.bytes += other.bytes;
        self.skipped.append(&mut other.skipped);
    }
}

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
