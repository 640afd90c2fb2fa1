//! The memory of batches: slots, and the list of those that are free.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::label_sets::LabelSets;
use crate::mix::Mix;
use crate::order::Job;
use crate::storage::mapping::populate_fresh;
use crate::sync::{Mutex, Sender};
use crate::transform::CropRect;

/// Values of a batch that are populated at a time: 1 MiB, during which no other thread can map memory.
const STEP: usize = 1 << 18;

/// One batch's memory. It grows to the largest batch and then stays.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub job: Job,
    /// (N, C, H, W); at least as long as the job needs, if images come as floats.
    pub images: Vec<f32>,
    /// (N, H, W, C); at least as long as the job needs, if images come as bytes.
    pub pixels: Vec<u8>,
    /// One a sample, if images come as crop rectangles.
    pub crop_rects: Vec<CropRect>,
    /// How many values of `images` have their pages populated.
    pub populated: usize,
    pub labels: Vec<u32>,
    /// Whether samples may have several labels.
    pub multi_label: bool,
    /// All labels of each sample, where there may be several.
    pub label_sets: LabelSets,
    /// How the images are mixed with each other, if they are.
    pub mix: Option<Mix>,
    /// Bytes of the records read.
    pub bytes: u64,
    /// The errors of the samples that were left out.
    pub skipped: Vec<Error>,
    /// Who filled it, and when.
    pub filling: Option<Filling>,
}

/// The time in which a thread filled a batch.
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
    /// Makes room for `values` values or bytes of images and forgets the previous batch's labels and counts.
    pub fn prepare(&mut self, values: usize, as_bytes: bool) {
        if as_bytes && self.pixels.len() < values {
            self.pixels.resize(values, 0);
        } else if !as_bytes && self.images.len() < values {
            // fresh pages of the system are zero already; they are populated as the images are written
            (self.images, self.populated) = (vec![0.0; values], 0);
        }
        self.labels.clear();
        self.label_sets.clear();
        self.skipped.clear();
        self.bytes = 0;
    }

    /// Populates the pages of the images' values up to `end`, and some more.
    pub fn populate(&mut self, end: usize) {
        if end > self.populated {
            let end = end.max(self.populated + STEP).min(self.images.len());
            populate_fresh(&mut self.images[self.populated..end]);
            self.populated = end;
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
        let _ = tokens.try_send(Token::Slot);
    }

    /// Takes a slot; the caller has received a token for it.
    pub fn take(&self) -> Slot {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

/// A message to the threads that fill slots.
pub(crate) enum Token {
    /// There is a free slot.
    Slot,
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
        for bytes in 1..=3 {
            slots.add(Slot { bytes, ..Slot::default() }, &free);
        }
        let used = slots.take();
        slots.add(used, &free);
        assert_eq!([slots.take().bytes, slots.take().bytes, slots.take().bytes], [3, 2, 1]);
        assert_eq!(tokens.len(), 3, "a token for each, and no room for more");
    }
}
