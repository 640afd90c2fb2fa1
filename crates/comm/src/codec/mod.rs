//! Codecs: how a bucket of gradients becomes numbers that MPI can add, and back. One codec a file.
//!
//! A new codec is a file here that has an [`Entry`], and its line in [`CATALOGUE`]. Not here: which parameters make up a bucket, and
//! when it leaves (`train::reduce`); the calls themselves ([`World`]).

mod bf16;
mod coded;
mod exact;
pub mod fixed;
mod float;
mod int8;
mod packed;
mod philox;
mod ternary;

use std::ops::Range;

use base::code_spec::CodeSpec;

use crate::error::Error;
use crate::world::World;

/// All codecs.
pub const CATALOGUE: &[Entry] = &[float::ENTRY, exact::ENTRY, int8::ENTRY, bf16::ENTRY, ternary::ENTRY];

/// The codec that sends f32 as they are.
pub const FLOAT: Entry = float::ENTRY;

/// The codec that sums integers without rounding at random.
pub const EXACT: Entry = exact::ENTRY;

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

#[cfg(test)]
mod tests;

/// The recipe's settings of a codec, and the number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// V, over all ranks.
    pub workers: usize,
    /// Multiple of the deviation at which ternary clips; 0: not at all.
    pub clip: f32,
    /// Whether what rounding or clipping has cut off is added to the next step's gradient.
    pub error_feedback: bool,
}

impl Settings {
    /// Nothing is clipped, nothing fed back.
    pub fn plain(workers: usize) -> Self {
        Self { workers, clip: 0.0, error_feedback: false }
    }
}

/// A way of adding a bucket over all workers of all ranks. Its phases run in the order of the methods, once a step, with the same
/// shares: this rank's workers in order, or, where a codec takes their sum, the last alone.
pub trait Codec: Send {
    /// For each tensor the bits of a number >= 0, of which `encode` gets the largest over all workers; infinity and NaN end the
    /// step. None where the codec needs none.
    fn scales(&mut self, _bucket: &Bucket, _shares: &mut [Share<'_>], _scales: &mut Vec<u32>) {}

    /// Turns the shares into what travels, which may be the last share itself.
    fn encode(&mut self, _bucket: &Bucket, _scales: &[u32], _shares: &mut [Share<'_>], _key: Key) {}

    /// Adds it over all ranks.
    fn send(&mut self, world: &World, shares: &mut [Share<'_>]) -> Result<(), Error>;

    /// Leaves the sum over all workers in `into`, the gradients of the last share.
    fn decode(&mut self, _bucket: &Bucket, _scales: &[u32], _into: &mut [f32]) {}

    /// Bytes of memory of its own.
    fn memory(&self) -> usize {
        0
    }

    /// What this worker carries over to the next step, in the bucket's layout; none without error feedback.
    fn residual(&mut self, _worker: usize) -> Option<&mut [f32]> {
        None
    }
}

/// How many of a tensor's codes are 0, of one worker: of its gradients, the bits of the scale of all workers, and what keys its draws.
pub type ZeroCodes = fn(&Tensor, &[f32], u32, usize, Key) -> u64;

/// A codec of the catalogue.
pub struct Entry {
    /// Its name in recipes.
    pub name: &'static str,
    /// A few words for the log.
    pub about: &'static str,
    /// Keys of `[reduce]` that have a meaning for it.
    pub keys: &'static [&'static str],
    /// Workers at most: beyond, lanes or integers would be too narrow.
    pub most_workers: usize,
    /// Whether the sum is one of integers, the same in any order: then everything else that a step sums must be, too.
    pub integer: bool,
    /// Whether rounding or clipping may be biased, so that error feedback has something to feed back.
    pub biased: bool,
    /// Makes one for a bucket; the workers are those of this rank.
    pub make: fn(&Bucket, &Settings, Range<usize>) -> Box<dyn Codec>,
    /// Counts codes that are 0, for codecs that make many of them on purpose.
    pub zeros: Option<ZeroCodes>,
    /// Its description for a device that has the gradients; none where they travel as they are.
    pub spec: fn(&Bucket, &Settings) -> Option<CodeSpec>,
}

/// Keys of codecs that round, which can leave tensors to `exact`.
const CODED: &[&str] = &["min_elements", "logits", "exempt"];

impl Entry {
    /// Whether each worker's gradients must stay separate until they are coded: their sum on one rank would depend on which workers
    /// are there.
    pub fn keeps_workers_apart(&self, settings: &Settings) -> bool {
        self.integer || settings.error_feedback
    }
}

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
    /// Optimizer steps done before; 2^31 more for the second gradient of a step that takes two, whose draws are its own.
    pub step: u64,
}
