//! Describes how a device encodes a bucket of gradients. `comm::codec` creates this description and documents the
//! formulas.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq)]
pub struct CodeSpec {
    /// Number of elements in the bucket.
    pub len: usize,
    /// True if the encoding error of a worker's gradient is added to its next gradient (error feedback).
    pub feedback: bool,
    pub format: CodeFormat,
}

/// The format in which gradients are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum CodeFormat {
    /// The nearest bf16. The encoding error is the rounding error.
    Bf16,
    /// Integers with one scale per tensor. The encoding error is the clipped part of tensors in lanes.
    Integers(IntegerCodes),
}

/// Parameters of an integer encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerCodes {
    /// The tensors of the bucket. Their scales have the same order.
    pub parts: Vec<CodedTensor>,
    /// Number of workers over all ranks.
    pub workers: usize,
    /// Number of bits by which a sum over all workers can grow.
    pub room: u32,
    /// Width of a lane in a 64-bit word, in bits.
    pub bits: u32,
    /// Number of lanes in a 64-bit word.
    pub per_word: usize,
    /// Words per block. Lane l of word j holds element l w + j, where w is this number.
    pub block: usize,
    /// The code of a gradient with |g| = scale, which is the largest code. This number is added to every code in a
    /// lane, so that no code is negative.
    pub steps: u32,
    /// The scale of a tensor in lanes, as a number of standard deviations of the worker's gradient. With 0 the scale is
    /// the largest |g|, as for tensors that are not in lanes.
    pub clip: f32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodedTensor {
    /// Range of the tensor's elements in the bucket.
    pub range: Range<usize>,
    /// Number of elements without padding.
    pub elems: usize,
    /// Parameter index that is part of the key for random draws.
    pub parameter: u16,
    /// True if the tensor is randomly rounded into lanes, false if it is sent as 32-bit fixed point.
    pub in_lanes: bool,
}

/// The key of a step's random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    /// Number of optimizer steps done before this one. Optimizers that compute a second gradient per step add 2^31 for
    /// it, so that it has its own draws.
    pub step: u64,
}

/// Sums over a tensor of one worker, computed block by block. A block has [`IntegerCodes::block`] words of lanes, the
/// last one may be shorter.
///
/// The sums are in f64 and in a fixed order, which is the same on every device. Within a block, element i is added to
/// partial sum i mod [`Moments::LANES`], in ascending order of i. Then partial sum l + 16 is added to partial sum l,
/// then l + 8, l + 4, l + 2 and l + 1. Finally the blocks are added in order. The square of an f32 is exact in f64, so
/// fused multiply-add gives the same result.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    /// The bits of the largest |g|. Compared as integers, the bits of NaN are the largest, followed by infinity.
    pub largest: u32,
    pub sum: f64,
    /// Sum of the squares of all elements.
    pub squares: f64,
}

impl Moments {
    pub const LANES: usize = 32;

    /// If the standard deviation is below this fraction of the largest |g|, the elements are considered equal up to
    /// rounding.
    const EQUAL: f64 = 1e-6;

    pub fn add(&mut self, block: Self) {
        self.largest = self.largest.max(block.largest);
        self.sum += block.sum;
        self.squares += block.squares;
    }

    /// Returns the worker's scale as the bits of an f32: `clip` times the standard deviation of `elems` elements.
    /// Returns the largest |g| if `clip` is 0 or all elements are equal. Infinity and NaN are passed through.
    pub fn scale(&self, elems: usize, clip: f32) -> u32 {
        let most = f32::from_bits(self.largest);
        if clip == 0.0 || !most.is_finite() {
            return self.largest;
        }
        let mean = self.sum / elems as f64;
        let deviation = (self.squares / elems as f64 - mean * mean).max(0.0).sqrt();
        if deviation <= Self::EQUAL * f64::from(most) {
            return self.largest;
        }
        ((f64::from(clip) * deviation) as f32).min(f32::MAX).to_bits()
    }
}

/// Buffers of encoded gradients (codes) in host memory. MPI replaces the codes by their sums over all ranks.
#[derive(Debug)]
pub struct Codes<'a> {
    /// Codes in 32-bit fixed point.
    pub integers: &'a mut [i32],
    /// 64-bit words with lanes of codes.
    pub words: &'a mut [u64],
    pub halves: &'a mut [u16],
}
