//! Codecs convert a bucket of gradients to numbers that MPI can add, and back. Each codec has one file.
//!
//! A new codec needs a file with an [`Entry`] and a line in [`CATALOGUE`]. `train::reduce` decides which parameters
//! form a bucket and when it is sent. [`World`] has the MPI calls.

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
pub use base::code_spec::Draw as Key;

use crate::error::Error;
use crate::world::World;

pub const CATALOGUE: &[Entry] = &[float::ENTRY, exact::ENTRY, int8::ENTRY, bf16::ENTRY, ternary::ENTRY];

/// The codec that sends f32 values unchanged.
pub const FLOAT: Entry = float::ENTRY;

/// The codec that sums integers without random rounding.
pub const EXACT: Entry = exact::ENTRY;

/// The names of all codecs, as in the recipe.
pub const NAMES: [&str; CATALOGUE.len()] = {
    let mut names = [""; CATALOGUE.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = CATALOGUE[i].name;
        i += 1;
    }
    names
};

pub fn find(name: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests;

/// The recipe's settings for a codec, and the number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Number of workers V over all ranks.
    pub workers: usize,
    /// `ternary` clips at this number of standard deviations. 0 means no clipping.
    pub clip: f32,
    /// True if the rounding or clipping error is added to the gradient of the next step.
    pub error_feedback: bool,
}

impl Settings {
    /// Settings without clipping and without error feedback.
    pub fn plain(workers: usize) -> Self {
        Self { workers, clip: 0.0, error_feedback: false }
    }
}

/// A gradient codec with its buffers for one bucket. It sums the bucket over all workers of all ranks. Each step calls
/// `scales`, `encode`, `send` and `decode` once, in this order, with the same shares. There is one share for each
/// worker of this rank, in order. If [`Entry::keeps_workers_apart`] is false, there is a single share with the rank's
/// sum.
pub trait Codec: Send {
    /// Appends one number >= 0 per tensor to `scales`, as the bits of an f32. `encode` gets the maximum over all
    /// workers. If a scale is infinite or NaN, the step is skipped or the run fails. Codecs without scales append
    /// nothing.
    fn scales(&mut self, _bucket: &Bucket, _shares: &mut [Share<'_>], _scales: &mut Vec<u32>) {}

    /// Encodes the shares. The encoded gradients may overwrite the last share.
    fn encode(&mut self, _bucket: &Bucket, _scales: &[u32], _shares: &mut [Share<'_>], _key: Key) {}

    /// Sums the encoded gradients over all ranks.
    fn send(&mut self, world: &World, shares: &mut [Share<'_>]) -> Result<(), Error>;

    /// Writes the sum over all workers to `into`, which is the buffer of the last share.
    fn decode(&mut self, _bucket: &Bucket, _scales: &[u32], _into: &mut [f32]) {}

    /// Returns the bytes that the codec has allocated.
    fn memory(&self) -> usize {
        0
    }

    /// Returns the residual that this worker carries over to the next step, in the bucket's layout. `None` without
    /// error feedback.
    fn residual(&mut self, _worker: usize) -> Option<&mut [f32]> {
        None
    }
}

/// Counts how many elements of a worker's tensor are encoded as zero. The arguments are the tensor, the worker's
/// gradients, the bits of the scale over all workers, the worker, and the key of the random draws.
pub type ZeroCodes = fn(&Tensor, &[f32], u32, usize, Key) -> u64;

/// An entry of the catalogue of codecs.
pub struct Entry {
    pub name: &'static str,
    /// A short description for the log.
    pub about: &'static str,
    /// The keys of `[reduce]` that apply to this codec.
    pub keys: &'static [&'static str],
    /// The largest number of workers. With more, the lanes or integers would be too narrow.
    pub most_workers: usize,
    /// True if the codec sums integers, so that the result does not depend on the order. All other sums of a step must
    /// then be independent of the order too.
    pub integer: bool,
    /// True if rounding or clipping may be biased. Only then does error feedback make sense.
    pub biased: bool,
    /// Creates the codec for a bucket. The range is the workers of this rank.
    pub make: fn(&Bucket, &Settings, Range<usize>) -> Box<dyn Codec>,
    /// Counts elements that are encoded as zero. `None` for codecs that do not produce zeros on purpose.
    pub zeros: Option<ZeroCodes>,
    /// Describes the codec for a device that encodes the gradients itself. Returns `None` if the gradients are sent
    /// unchanged.
    pub spec: fn(&Bucket, &Settings) -> Option<CodeSpec>,
}

/// The recipe keys of codecs that round and can exempt tensors.
const CODED: &[&str] = &["min_elements", "logits", "exempt"];

impl Entry {
    /// Returns true if each worker's gradients must stay separate until they are encoded. Otherwise the result would
    /// depend on which workers share a rank.
    pub fn keeps_workers_apart(&self, settings: &Settings) -> bool {
        self.integer || settings.error_feedback
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name of the parameter, for messages.
    pub name: String,
    /// Index of the parameter, for the key of its random draws.
    pub parameter: u16,
    /// The range in the bucket. Elements beyond `elems` are padding and contain zeros.
    pub range: Range<usize>,
    /// Number of elements without padding.
    pub elems: usize,
    /// True if the tensor is sent as in `exact` even if the codec rounds.
    pub exempt: bool,
}

/// Tensors that are sent together: one bucket of the gradient arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Elements in the bucket, including gaps between tensors.
    pub len: usize,
    /// The tensors in ascending order of their ranges.
    pub tensors: Vec<Tensor>,
}

/// One worker's gradients for a bucket, divided by the number of samples in the whole step.
pub struct Share<'a> {
    pub worker: usize,
    /// The gradients of the whole bucket.
    pub gradients: &'a mut [f32],
}
