//! How gradients become numbers that add up, told in numbers alone: what a codec (`comm::codec`, which has the formulas) asks of a
//! device that has the gradients in memory of its own.

use std::ops::Range;

/// The coding of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coding {
    /// The nearest bf16 of so many elements.
    Halves(usize),
    /// Whole numbers, by one scale a tensor.
    Whole(Whole),
}

/// Tensors as whole numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place in the bucket.
    pub range: Range<usize>,
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
    /// The worker of the first share.
    pub worker: usize,
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
