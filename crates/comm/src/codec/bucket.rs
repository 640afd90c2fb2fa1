//! A bucket of gradients, and what is known of one step of it.

use std::ops::Range;

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
