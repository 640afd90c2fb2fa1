//! The codec `ternary` (TernGrad, Wen et al. 2017, arXiv 1705.07878, following the authors' code). Each worker's
//! gradient becomes s times -1, 0 or +1, where |code| is 1 with probability min(|g| / s, 1). For each tensor, s is the
//! maximum over all workers of c sigma, where sigma is the standard deviation of the worker's gradient. With c = 0, s
//! is the largest |g|. Gradients beyond s are clipped to s, all others have the exact expected value. [`Moments`]
//! defines the order of the sums for sigma on every device.
//!
//! The workers' gradients are already divided by the number of samples of the whole step. Encoding V times these
//! gradients and averaging the V results would give the same: V cancels in g / s and in s / V. The code plus 1 is sent
//! in a lane that can hold 2 V.
//!
//! Error feedback keeps the part that clipping removes, p - clip(p), which is the bias. It does not keep the rounding
//! noise: that has mean zero and is as large as the gradient itself, so it would accumulate from step to step.

use std::ops::Range;

use base::code_spec::Moments;
use base::simd;

use super::bf16::{Feedback, add_residual};
use super::coded::Coded;
use super::exact;
use super::exact::largest;
use super::philox::Stream;
use super::{Bucket, Key, Share, Tensor};
use super::{Codec, Entry, Settings};
use crate::error::Error;
use crate::world::World;

pub const ENTRY: Entry = Entry {
    name: "ternary",
    about: "-1, 0 or +1 at random with one scale per tensor (TernGrad), the same result on any number of ranks",
    keys: &["min_elements", "logits", "exempt", "clip", "error_feedback", "floating_grad_epoch"],
    most_workers: MOST_WORKERS,
    integer: true,
    biased: true,
    make: |bucket, settings, mine| Box::new(Ternary::new(bucket, settings, mine)),
    zeros: Some(zeros),
    spec: |bucket, settings| Some(exact::describe(bucket, settings, Some((1, settings.clip)))),
};

/// Largest number of workers. With more, a lane would need more than 16 bits.
const MOST_WORKERS: usize = (1 << 15) - 1;

/// Codes computed at a time to count zeros, in whole groups of the random generator.
const COUNTED: usize = 1024;

/// Number of partial sums that fit into vector registers together with their inputs.
const SIDE_BY_SIDE: usize = 16;

simd! {
    /// Computes the moments of one block, in the order defined by [`Moments`].
    pub(super) fn moments(block: &[f32]) -> Moments {
        let (mut sums, mut squares) = ([0f64; Moments::LANES], [0f64; Moments::LANES]);
        let (groups, rest) = block.as_chunks::<{ Moments::LANES }>();
        for first in (0..Moments::LANES).step_by(SIDE_BY_SIDE) {
            let (mut own_sums, mut own_squares) = ([0f64; SIDE_BY_SIDE], [0f64; SIDE_BY_SIDE]);
            for group in groups {
                for lane in 0..SIDE_BY_SIDE {
                    let g = f64::from(group[first + lane]);
                    own_sums[lane] += g;
                    own_squares[lane] += g * g;
                }
            }
            sums[first..first + SIDE_BY_SIDE].copy_from_slice(&own_sums);
            squares[first..first + SIDE_BY_SIDE].copy_from_slice(&own_squares);
        }
        for (lane, g) in rest.iter().enumerate() {
            let g = f64::from(*g);
            sums[lane] += g;
            squares[lane] += g * g;
        }
        for half in [16, 8, 4, 2, 1] {
            for lane in 0..half {
                sums[lane] += sums[lane + half];
                squares[lane] += squares[lane + half];
            }
        }
        Moments { largest: largest(block), sum: sums[0], squares: squares[0] }
    }
}

simd! {
    /// Encodes gradients. `words` contains random words, which are replaced by the codes plus 1.
    pub(super) fn code(gradients: &[f32], words: &mut [u32], scale: f32) {
        for (word, g) in words.iter_mut().zip(gradients) {
            let draw = (*word >> 8) as i32 as f32;
            let kept = u32::from(draw < g.abs() / scale * (1 << 24) as f32);
            let sign = 1u32.wrapping_sub(2 * (g.to_bits() >> 31));
            *word = 1u32.wrapping_add(kept.wrapping_mul(sign));
        }
    }
}

simd! {
    /// Stores in `residual` what clipping to `scale` removes from the gradients.
    fn cut(gradients: &[f32], residual: &mut [f32], scale: f32) {
        for (r, g) in residual.iter_mut().zip(gradients) {
            *r = *g - g.clamp(-scale, scale);
        }
    }
}

/// Returns one worker's scale of a tensor, as the bits of an f32. Infinity and NaN are passed through.
pub(super) fn scale(tensor: &Tensor, gradients: &[f32], clip: f32, block: usize) -> u32 {
    if clip == 0.0 {
        return largest(gradients);
    }
    let mut all = Moments::default();
    gradients.chunks(block).for_each(|block| all.add(moments(block)));
    all.scale(tensor.elems, clip)
}

/// Counts the elements of a worker's tensor that are encoded as 0. Uses the same random draws as [`Codec::encode`].
fn zeros(tensor: &Tensor, gradients: &[f32], scale: u32, worker: usize, key: Key) -> u64 {
    if scale == 0 {
        return tensor.elems as u64;
    }
    let stream = Stream::new(key, worker, tensor.parameter);
    let (mut words, mut others) = ([0; COUNTED], 0);
    for (part, gradients) in gradients.chunks(COUNTED).enumerate() {
        let words = &mut words[..gradients.len()];
        stream.fill(part * COUNTED, words);
        code(gradients, words, f32::from_bits(scale));
        others += words.iter().filter(|code| **code != 1).count() as u64;
    }
    // The code of padding is always 0.
    (tensor.elems as u64).saturating_sub(others)
}

struct Ternary {
    coded: Coded,
    feedback: Feedback,
    workers: usize,
    clip: f32,
}

impl Ternary {
    fn new(bucket: &Bucket, settings: &Settings, mine: Range<usize>) -> Self {
        let workers = settings.workers;
        Self {
            coded: Coded::new(bucket, workers, 2),
            feedback: Feedback::new(settings.error_feedback, bucket.len, mine),
            workers,
            clip: settings.clip,
        }
    }
}

impl Codec for Ternary {
    fn scales(&mut self, bucket: &Bucket, shares: &mut [Share<'_>], scales: &mut Vec<u32>) {
        for (share, residual) in self.feedback.pairs(shares) {
            for (_, tensor) in self.coded.tensors(bucket) {
                add_residual(&mut share.gradients[tensor.range.clone()], &residual[tensor.range.clone()]);
            }
        }
        let (clip, block) = (self.clip, self.coded.block());
        self.coded.scales(bucket, shares, scales, |tensor, gradients| scale(tensor, gradients, clip, block));
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &mut [Share<'_>], key: Key) {
        for (share, residual) in self.feedback.pairs(shares) {
            for (index, tensor) in self.coded.tensors(bucket) {
                let range = tensor.range.clone();
                cut(&share.gradients[range.clone()], &mut residual[range], f32::from_bits(scales[index]));
            }
        }
        self.coded.encode(bucket, scales, shares, key, code);
    }

    fn send(&mut self, world: &World, _: &mut [Share<'_>]) -> Result<(), Error> {
        self.coded.send(world)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        self.coded.decode(bucket, scales, (self.workers as i32, 1.0), into);
    }

    fn memory(&self) -> usize {
        self.coded.memory() + self.feedback.memory()
    }

    fn residual(&mut self, worker: usize) -> Option<&mut [f32]> {
        self.feedback.residual(worker)
    }
}
