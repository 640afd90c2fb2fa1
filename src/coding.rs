//! How gradients become numbers that add up, told in numbers alone: what a codec (`comm::codec`, which has the formulas) asks of a
//! device that has the gradients in memory of its own.

use std::ops::Range;

/// The coding of a bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Coding {
    /// Elements of the bucket.
    pub len: usize,
    /// Whether what is cut off a worker's gradient is added to its next one.
    pub feedback: bool,
    /// What gradients become.
    pub form: Form,
}

/// What gradients become.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// The nearest bf16; fed back is what rounding cuts off.
    Halves,
    /// Whole numbers, by one scale a tensor; fed back is what lies beyond the scale, of tensors in lanes.
    Whole(Whole),
}

/// Tensors as whole numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// The tensors, in the order of their scales.
    pub parts: Vec<Part>,
    /// V, over all ranks.
    pub workers: usize,
    /// Bits by which a sum over all workers grows.
    pub room: u32,
    /// Bits of a lane.
    pub bits: u32,
    /// Lanes of a 64-bit word.
    pub per_word: usize,
    /// Words of a block: lane l of its word j holds element l w + j, where it has w words.
    pub block: usize,
    /// The largest code in a lane, for |g| = scale; it is added to each, so that none is negative.
    pub steps: u32,
    /// Deviations of a worker's gradient that make its scale of a tensor in lanes; 0: the largest |g| does, as it does elsewhere.
    pub clip: f32,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place in the bucket.
    pub range: Range<usize>,
    /// Elements without the zeros that pad it.
    pub elems: usize,
    /// Keys its random draws.
    pub parameter: u16,
    /// Whether it goes rounded at random in lanes, or as 32-bit fixed point.
    pub in_lanes: bool,
}

/// What keys a step's random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The run's seed.
    pub seed: u64,
    /// Optimizer steps done before.
    pub step: u64,
}

/// What is known of a tensor of one worker, block by block ([`Whole::block`] words of lanes, a shorter one last).
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
    /// Sums side by side.
    pub const LANES: usize = 32;

    /// Where the deviation is below this part of the largest |g|, all elements are equal (or there is one alone) but for rounding.
    const EQUAL: f64 = 1e-6;

    /// Takes in the next block.
    pub fn add(&mut self, block: Self) {
        self.largest = self.largest.max(block.largest);
        self.sum += block.sum;
        self.squares += block.squares;
    }

    /// The worker's scale, as bits: `clip` deviations from the mean of `elems` elements. It is the largest |g| with `clip` = 0, and
    /// where all elements are equal; infinity and NaN show.
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

/// Codes on the host, which their sums over all ranks replace.
#[derive(Debug)]
pub struct Codes<'a> {
    /// 32-bit fixed point.
    pub integers: &'a mut [i32],
    /// Words of lanes.
    pub words: &'a mut [u64],
    /// bf16.
    pub halves: &'a mut [u16],
}
