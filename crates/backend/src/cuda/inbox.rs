//! What the host writes anew before each pass, and before an optimizer step: one block on the GPU, which the kernel of the network's input
//! fills, or a copy. Addresses stay the same, so that a recorded pass finds them again.

use std::ops::Range;
use std::sync::Arc;

use super::driver::inlet::Inlet;
use super::driver::queues::Queues;
use super::driver::slice::Slice;
use super::driver::stream::Stream;
use super::kernels::update::NUMBERS;
use crate::{CrossEntropy, Error};

/// Words of 8 bytes: the optimizer's numbers, the epoch, smoothing and factor of the loss, then for each row its id, then its label.
const EPOCH: usize = NUMBERS;
const LOSS: usize = EPOCH + 1;
const ROWS: usize = LOSS + 1;

/// See the module.
pub struct Inbox {
    block: Inlet<u64>,
    /// The words as the next copy takes them.
    words: Vec<u64>,
    rows: usize,
    /// Whether an optimizer step was begun.
    begun: bool,
}

impl Inbox {
    /// Room for passes over so many rows.
    pub fn new(queues: &Arc<Queues>, rows: usize) -> Result<Self, Error> {
        let words = ROWS + rows + rows.div_ceil(2);
        Ok(Self { block: Inlet::new(queues, words, "a pass's numbers")?, words: vec![0; words], rows, begun: false })
    }

    /// The same with more room, at another address.
    pub fn grown(&self, queues: &Arc<Queues>, rows: usize) -> Result<Self, Error> {
        let mut grown = Self { begun: self.begun, ..Self::new(queues, rows)? };
        grown.words[..ROWS].copy_from_slice(&self.words[..ROWS]);
        Ok(grown)
    }

    /// Rows that fit.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Epoch and ids of a pass.
    pub fn set_pass(&mut self, epoch: u32, ids: &[u64]) {
        self.words[EPOCH] = u64::from(epoch);
        self.words[ROWS..ROWS + ids.len()].copy_from_slice(ids);
    }

    /// Arguments of the loss.
    pub fn set_loss(&mut self, ask: &CrossEntropy<'_>) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.words[LOSS] = pair(ask.smoothing.to_bits(), ask.scale.to_bits());
        let labels = self.words[ROWS + self.rows..].iter_mut().zip(ask.labels.chunks(2));
        labels.for_each(|(word, labels)| *word = pair(labels[0], labels.get(1).copied().unwrap_or(0)));
    }

    /// The optimizer's numbers; whether they differ from those before.
    pub fn set_step(&mut self, numbers: [f64; NUMBERS]) -> bool {
        let bits = numbers.map(f64::to_bits);
        let differ = !self.begun || self.words[..NUMBERS] != bits;
        self.words[..NUMBERS].copy_from_slice(&bits);
        self.begun = true;
        differ
    }

    /// Has a kernel that `launch` enqueues copy everything that a pass over so many rows reads, and the optimizer's numbers.
    pub fn send_by(
        &mut self,
        stream: &Stream,
        launch: impl FnOnce(Slice<'_, u64>, Slice<'_, u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.block.write_by(&self.words, stream, launch)
    }

    /// Enqueues a copy of the same.
    pub fn send(&mut self, stream: &Stream) -> Result<(), Error> {
        self.copy(0..self.words.len(), stream)
    }

    /// Enqueues the copy of the optimizer's numbers.
    pub fn send_step(&mut self, stream: &Stream) -> Result<(), Error> {
        self.copy(0..NUMBERS, stream)
    }

    fn copy(&mut self, range: Range<usize>, stream: &Stream) -> Result<(), Error> {
        self.block.write(&self.words[range], stream)
    }

    /// Class of each row.
    pub fn labels(&self) -> Result<Slice<'_, u32>, Error> {
        self.block.slice_as().range(2 * (ROWS + self.rows), self.rows)
    }

    /// Sample of each row.
    pub fn ids(&self) -> Result<Slice<'_, u64>, Error> {
        self.block.slice_as().range(ROWS, self.rows)
    }

    /// The epoch, one element.
    pub fn epoch(&self) -> Result<Slice<'_, u32>, Error> {
        self.block.slice_as().range(2 * EPOCH, 1)
    }

    /// Smoothing, and the factor of the gradient.
    pub fn factors(&self) -> Result<Slice<'_, f32>, Error> {
        self.block.slice_as().range(2 * LOSS, 2)
    }

    /// The numbers of the optimizer step that was begun.
    pub fn numbers(&self) -> Result<Slice<'_, f64>, Error> {
        if !self.begun {
            return Err(Error::Unsupported { op: "an optimizer step".into(), why: "it was not begun".into() });
        }
        self.block.slice_as().range(0, NUMBERS)
    }
}
