//! How a bucket of gradients is coded, in numbers alone: what a codec (`comm::codec`, which has the formulas) requires of a device that
//! holds the gradients.

use std::ops::Range;

/// The code of a bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeSpec {
    /// Elements of the bucket.
    pub len: usize,
    /// Whether the error of a worker's code is added to its next gradient (error feedback).
    pub feedback: bool,
    /// The numbers that are sent.
    pub format: CodeFormat,
}

/// The numbers that are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum CodeFormat {
    /// The nearest bf16; the error is that of rounding.
    Bf16,
    /// Integers, with one scale for each tensor; the error is the part beyond the scale, of tensors in lanes.
    Integers(IntegerCodes),
}

/// Tensors as integers.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerCodes {
    /// The tensors, in the order of their scales.
    pub parts: Vec<CodedTensor>,
    /// Workers of all ranks.
    pub workers: usize,
    /// Bits by which a sum over all workers can grow.
    pub room: u32,
    /// Bits of a lane.
    pub bits: u32,
    /// Lanes of a 64-bit word.
    pub per_word: usize,
    /// Words of a block: lane l of its word j holds element l w + j, where it has w words.
    pub block: usize,
    /// The largest code in a lane, for |g| = scale; it is added to every code, so that none is negative.
    pub steps: u32,
    /// The scale of a tensor in lanes in standard deviations of the worker's gradient; 0: the largest |g|, as for other tensors.
    pub clip: f32,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodedTensor {
    /// Its place in the bucket.
    pub range: Range<usize>,
    /// Elements without the zeros that pad it.
    pub elems: usize,
    /// Key of its random draws.
    pub parameter: u16,
    /// Whether its codes are rounded at random into lanes, or are 32-bit fixed point.
    pub in_lanes: bool,
}

/// The key of a step's random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The run's seed.
    pub seed: u64,
    /// Optimizer steps done before; 2^31 more for the second gradient of a step that takes two.
    pub step: u64,
}

/// Sums over a tensor of one worker, block by block ([`IntegerCodes::block`] words of lanes, a shorter one last).
///
/// Sums are in f64 and in one order, the same on every device: of a block, element i goes to sum i mod [`Moments::LANES`], in the
/// order of i; sum l takes in sum l + 16, then l + 8, 4, 2 and 1; then the blocks, one after another. Squares of f32 are exact in
/// f64, so that no fused addition rounds otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    /// The largest |g|, as bits: NaN > infinity > finite.
    pub largest: u32,
    /// Sum of all elements.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

impl Moments {
    /// Number of partial sums.
    pub const LANES: usize = 32;

    /// Where the deviation is below this part of the largest |g|, all elements are equal (or there is one alone) but for rounding.
    const EQUAL: f64 = 1e-6;

    /// Adds the next block.
    pub fn add(&mut self, block: Self) {
        self.largest = self.largest.max(block.largest);
        self.sum += block.sum;
        self.squares += block.squares;
    }

    /// The worker's scale, as bits: `clip` deviations from the mean of `elems` elements. It is the largest |g| with `clip` = 0, and
    /// where all elements are equal; infinity and NaN pass through.
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

/// Codes on the host; MPI replaces them by their sums over all ranks.
#[derive(Debug)]
pub struct Codes<'a> {
    /// 32-bit fixed point.
    pub integers: &'a mut [i32],
    /// Words of lanes.
    pub words: &'a mut [u64],
    /// bf16.
    pub halves: &'a mut [u16],
}
