//! A slot holds the memory for a batch. This module also keeps the list of free slots.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::label_sets::{LabelKind, LabelSets};
use crate::mix::Mix;
use crate::order::Job;
use crate::sync::{Mutex, Sender};
use crate::transform::CropRect;

/// The results of a sequence of samples, apart from their images.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub ids: Vec<u64>,
    /// The keys of the samples' random draws, see [`Job::key`].
    pub keys: Vec<u64>,
    pub labels: Vec<u32>,
    /// All labels of each sample, if the data set is multi-label.
    pub label_sets: LabelSets,
    /// The targets of all samples, one sample after the other. Empty if the labels are classes.
    pub targets: Vec<f32>,
    /// One per sample, if images are delivered as crop rectangles.
    pub crop_rects: Vec<CropRect>,
    /// Total size of the records in bytes, including framing.
    pub bytes: u64,
    /// The errors of samples that were left out.
    pub skipped: Vec<Error>,
}

impl Samples {
    /// Returns the number of samples, without those that were left out.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.keys.clear();
        self.labels.clear();
        self.label_sets.clear();
        self.targets.clear();
        self.crop_rects.clear();
        self.bytes = 0;
        self.skipped.clear();
    }

    /// Moves the samples of `other` to the end.
    pub fn append(&mut self, other: &mut Self) {
        self.ids.append(&mut other.ids);
        self.keys.append(&mut other.keys);
        self.labels.append(&mut other.labels);
        other.label_sets.iter().for_each(|classes| self.label_sets.push(classes.iter().copied()));
        self.targets.append(&mut other.targets);
        self.crop_rects.append(&mut other.crop_rects);
        self.bytes += other.bytes;
        self.skipped.append(&mut other.skipped);
    }
}

/// The memory of a batch. It grows to the size of the largest batch.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub job: Job,
    /// The images as (N, C, H, W), if they are floats. May be longer than the job needs.
    pub images: Vec<f32>,
    /// The bytes of stored values as (N, H, W, C). May be longer than the job needs.
    pub pixels: Vec<u8>,
    /// True if the pages of `images` are populated.
    pub populated: bool,
    /// The samples of the batch, without those that were left out.
    pub samples: Samples,
    /// The samples of each piece, until all pieces are done.
    pub pieces: Vec<Samples>,
    /// The kind of label that the samples have.
    pub label_kind: LabelKind,
    /// How the images are mixed with each other. `None` if they are not mixed.
    pub mix: Option<Mix>,
    /// The threads that filled the pieces, and when.
    pub fillings: Vec<Filling>,
}

/// The time that a thread needed to fill a batch, or a piece of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Number of the thread, from 0.
    pub thread: usize,
    pub start: Instant,
    pub took: Duration,
}

impl Slot {
    /// Makes room for a batch of `elements` floats or bytes in `pieces` pieces, and forgets the previous batch.
    pub fn prepare(&mut self, elements: usize, as_bytes: bool, pieces: usize) {
        // New pages from the system are already zero. They are populated when they are written.
        if as_bytes && self.pixels.len() < elements {
            self.pixels = vec![0; elements];
        } else if !as_bytes && self.images.len() < elements {
            (self.images, self.populated) = (vec![0.0; elements], false);
        }
        self.samples.clear();
        self.pieces.resize_with(pieces.max(self.pieces.len()), Samples::default);
        self.fillings.clear();
    }

    /// Moves the images of these samples, with `each` floats or bytes each, to an earlier position: sample `to`.
    pub fn close_gap(&mut self, samples: Range<usize>, to: usize, each: usize) {
        let (from, to) = (samples.start * each..samples.end * each, to * each);
        if from.end <= self.images.len() {
            self.images.copy_within(from.clone(), to);
        }
        if from.end <= self.pixels.len() {
            self.pixels.copy_within(from, to);
        }
    }
}

/// The free slots. The slot that was returned last is taken first: its memory is in the CPU caches. If only a few slots
/// are used at the same time, the memory of the other slots is never touched.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    slots: Mutex<Vec<Slot>>,
}

impl FreeSlots {
    /// Adds a slot and sends a token for it to the threads.
    pub fn add(&self, slot: Slot, tokens: &Sender<Token>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        // The channel has room for all tokens. Sending fails only if the threads have ended.
        let _ = tokens.try_send(Token::Work);
    }

    /// Takes a slot. The caller must have received a token for it.
    pub fn take(&self) -> Slot {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

/// A message to the threads that fill slots.
pub(crate) enum Token {
    /// There is a piece that no thread has taken, or a free slot. There is one token for each of them.
    Work,
    /// The thread that receives this must end.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_reused_in_lifo_order() {
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
