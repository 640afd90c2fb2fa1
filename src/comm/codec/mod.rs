//! Codecs: how a bucket of gradients becomes numbers that MPI can add, and back. One codec a file.
//!
//! A new codec is one file here, one line in [`CATALOGUE`]. Not here: which parameters make up a bucket, and when it leaves
//! (the training loop's business); the calls themselves ([`World`]).

mod bf16;
mod exact;
mod feedback;
pub mod fixed;
mod float;
mod int8;
mod lanes;
mod packed;
mod philox;
mod reducer;
mod ternary;

use std::ops::Range;

use super::{Error, World};
use crate::coding::{Codes, Coding, Form, Part, Whole};
use lanes::Lanes;
pub use reducer::{Costs, Course, Phases, Reducer};

/// One tensor of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its parameter, for messages.
    pub name: String,
    /// The parameter's number, which keys its random draws: at most 65,535.
    pub parameter: u16,
    /// Its place in the bucket; elements beyond `elems` are the padding of its format and hold zeros.
    pub range: Range<usize>,
    /// Elements without padding.
    pub elems: usize,
    /// Whether it goes as `exact` where a codec would round it.
    pub exempt: bool,
}

/// Tensors that travel together: one chunk of the gradient arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Elements of the chunk, gaps between tensors included.
    pub len: usize,
    /// In the order of their places.
    pub tensors: Vec<Tensor>,
}

/// One worker's gradients of a bucket, divided by the samples of the whole step.
pub struct Share<'a> {
    /// The logical worker.
    pub worker: usize,
    /// All of the bucket.
    pub gradients: &'a mut [f32],
}

/// What keys the random draws of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The run's seed.
    pub seed: u64,
    /// Optimizer steps done before.
    pub step: u64,
}

/// What the recipe says of a codec, and for how many workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// V, over all ranks.
    pub workers: usize,
    /// Multiple of the deviation at which ternary clips; 0: not at all.
    pub clip: f32,
    /// Whether what rounding or clipping has cut off is added to the next step's gradient.
    pub error_feedback: bool,
}

/// One way of adding a bucket over all workers of all ranks. The phases come in the order of the methods, once a step, with the
/// same shares: this rank's workers in order, or, where a codec takes the sum of them, the last alone.
pub trait Codec: Send {
    /// For each tensor the bits of a number >= 0, of which `encode` gets the largest over all workers; infinity and NaN end the
    /// step. None where the codec needs none.
    fn scales(&mut self, _bucket: &Bucket, _shares: &mut [Share<'_>], _scales: &mut Vec<u32>) {}

    /// Turns the shares into what travels.
    fn encode(&mut self, _bucket: &Bucket, _scales: &[u32], _shares: &mut [Share<'_>], _key: Key) {}

    /// Adds it over all ranks.
    fn send(&mut self, world: &World, shares: &mut [Share<'_>]) -> Result<(), Error>;

    /// Leaves the sum over all workers in `into`.
    fn decode(&mut self, _bucket: &Bucket, _scales: &[u32], _into: &mut [f32]) {}

    /// Bytes of memory of its own.
    fn memory(&self) -> usize {
        0
    }

    /// What this worker carries over to the next step, as the bucket lies; none without error feedback.
    fn residual(&mut self, _worker: usize) -> Option<&mut [f32]> {
        None
    }
}

/// A codec of the catalogue.
pub struct Entry {
    /// As recipes name it.
    pub name: &'static str,
    /// In a few words, for the log.
    pub about: &'static str,
    /// Keys of `[reduce]` that have a meaning for it.
    pub keys: &'static [&'static str],
    /// Workers at most: beyond, lanes or integers would be too narrow.
    pub most_workers: usize,
    /// Whether the sum is one of whole numbers, the same in any order: then all else that a step sums must be, too.
    pub integer: bool,
    /// Whether rounding or clipping may be biased, so that error feedback has something to feed back.
    pub biased: bool,
    /// Makes one for a bucket; the workers are those of this rank.
    pub make: fn(&Bucket, &Settings, Range<usize>) -> Box<dyn Codec>,
    /// The same, told to a device that has the gradients; none where they travel as they are.
    pub coding: fn(&Bucket, &Settings) -> Option<Coding>,
}

/// Keys of codecs that round, which can leave tensors to `exact`.
const CODED: &[&str] = &["min_elements", "logits", "exempt"];

/// All codecs.
pub const CATALOGUE: &[Entry] = &[float::ENTRY, exact::ENTRY, int8::ENTRY, bf16::ENTRY, ternary::ENTRY];

/// Their names.
pub const NAMES: [&str; CATALOGUE.len()] = {
    let mut names = [""; CATALOGUE.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = CATALOGUE[i].name;
        i += 1;
    }
    names
};

/// The codec of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// Whether each worker's gradients must be kept apart until the exchange: their sum on one rank would depend on which
    /// workers are there.
    pub fn keeps_workers_apart(&self, settings: &Settings) -> bool {
        self.integer || settings.error_feedback
    }
}

/// Whole numbers on a device: for what is not exempt lanes of codes up to so much, clipped at so many deviations, if there are any;
/// all else as `exact`.
fn whole(bucket: &Bucket, settings: &Settings, lanes: Option<(u32, f32)>) -> Coding {
    let &Settings { workers, error_feedback: feedback, .. } = settings;
    let part = |t: &Tensor| Part {
        range: t.range.clone(),
        elems: t.elems,
        parameter: t.parameter,
        in_lanes: lanes.is_some() && !t.exempt,
    };
    let (steps, clip) = lanes.unwrap_or((1, 0.0));
    let Lanes { bits, per_word } = Lanes::holding(2 * u64::from(steps) * workers as u64);
    let (parts, room) = (bucket.tensors.iter().map(part).collect(), head_room(workers));
    let form = Form::Whole(Whole { parts, workers, room, bits, per_word, block: packed::BLOCK, steps, clip });
    Coding { len: bucket.len, feedback, form }
}

/// Replaces a device's codes by their sums over all ranks.
pub fn sum_codes(world: &World, codes: Codes<'_>) -> Result<(), Error> {
    if !codes.words.is_empty() {
        world.sum_u64(codes.words)?;
    }
    if !codes.integers.is_empty() {
        world.sum_i32(codes.integers)?;
    }
    if !codes.halves.is_empty() {
        world.sum_bf16(codes.halves)?;
    }
    Ok(())
}

/// h: the bits that a sum over so many workers grows by.
pub fn head_room(workers: usize) -> u32 {
    usize::BITS - workers.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests;
