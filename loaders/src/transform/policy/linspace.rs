//! Evenly spaced numbers.

use crate::transform::bytes::fused;

/// Number `i` of `count` evenly spaced numbers from `start` to `end`, to the bit as `torch.linspace` computes them in f32.
pub(super) fn linspace(start: f32, end: f32, count: u32, i: u32) -> f32 {
    let step = (end - start) / (count - 1) as f32;
    match i < count / 2 {
        true => fused(step, i as f32, start),
        false => fused(-step, (count - 1 - i) as f32, end),
    }
}
