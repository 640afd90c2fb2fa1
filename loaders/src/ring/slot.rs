//! The memory of batches: slots, those that are free, and how a thread comes by one.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Sender;

use crate::error::Error;
use crate::order::Job;
use crate::storage::mapping::populate_fresh;
use crate::transform::Sight;

/// Values of a batch that are brought into memory at a time: 1 MiB, during which no other thread maps anything.
const STEP: usize = 1 << 18;

/// One batch's memory. It grows to the largest batch and then stays.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub job: Job,
    /// (N, C, H, W); at least as long as the job needs, where images come as values.
    pub images: Vec<f32>,
    /// (N, H, W, C); at least as long as the job needs, where they come as bytes.
    pub pixels: Vec<u8>,
    /// One a sample, where no more is wanted of them.
    pub sights: Vec<Sight>,
    /// How many of their values are in memory for sure; the rest is as the system gave it.
    pub touched: usize,
    pub labels: Vec<u32>,
    /// Bytes of the records read.
    pub bytes: u64,
    /// What was wrong with the samples that were left out.
    pub skipped: Vec<Error>,
}

impl Slot {
    /// Brings the images' values up to this one into memory, and some more.
    pub fn touch(&mut self, end: usize) {
        if end > self.touched {
            let end = end.max(self.touched + STEP).min(self.images.len());
            populate_fresh(&mut self.images[self.touched..end]);
            self.touched = end;
        }
    }
}

/// The slots that are free. The one given back last goes first: its memory is at hand, and where few are ever in use at
/// once, that of the others is never touched.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    slots: Mutex<Vec<Slot>>,
}

impl Spare {
    /// Adds a slot and tells the threads of it.
    pub fn add(&self, slot: Slot, free: &Sender<Token>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        // there is room for all; if the threads are gone, so is the need
        let _ = free.try_send(Token::Slot);
    }

    /// Takes the slot that a token stands for.
    pub fn take(&self) -> Slot {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

/// What comes to the threads.
pub(crate) enum Token {
    /// One of the spare slots.
    Slot,
    /// To one thread: end.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_used_last_goes_first() {
        let (free, tokens) = crossbeam_channel::bounded(3);
        let spare = Spare::default();
        for bytes in 1..=3 {
            spare.add(Slot { bytes, ..Slot::default() }, &free);
        }
        let used = spare.take();
        spare.add(used, &free);
        assert_eq!([spare.take().bytes, spare.take().bytes, spare.take().bytes], [3, 2, 1]);
        assert_eq!(tokens.len(), 3, "a token for each, and no room for more");
    }
}
