//! The codec `bf16`. The sum over a rank's workers is rounded to bf16, and so is every partial sum of ranks. As with
//! `float`, MPI determines the order of the additions, so the result is not bit-reproducible. With error feedback, each
//! worker's gradient is rounded separately, and its rounding error is added to the worker's next gradient. The rounding
//! errors of the sums over ranks are lost.

use std::ops::Range;

use base::bf16::{narrow_all, round, widen, widen_all};
use base::code_spec::{CodeFormat, CodeSpec};
use base::simd;

use super::{Bucket, Codec, Entry, Key, Settings, Share};
use crate::error::Error;
use crate::world::World;

pub const ENTRY: Entry = Entry {
    name: "bf16",
    about: "bf16, each partial sum rounded, added in MPI's order",
    keys: &["error_feedback"],
    most_workers: usize::MAX,
    integer: false,
    biased: true,
    make: |bucket, settings, mine| Box::new(Bf16::new(bucket, settings, mine)),
    zeros: None,
    spec: |bucket, settings| {
        Some(CodeSpec { len: bucket.len, feedback: settings.error_feedback, format: CodeFormat::Bf16 })
    },
};

simd! {
    /// Rounds `gradients` to bf16 and stores the rounding errors in `residual`. If a value is not finite after
    /// rounding, its residual stays unchanged. The step is then skipped or the run fails.
    fn split(gradients: &mut [f32], residual: &mut [f32]) {
        for (g, r) in gradients.iter_mut().zip(residual) {
            let rounded = widen(round(*g));
            *r = if rounded.is_finite() { *g - rounded } else { *r };
            *g = rounded;
        }
    }
}

struct Bf16 {
    numbers: Vec<u16>,
    feedback: Feedback,
}

impl Bf16 {
    fn new(bucket: &Bucket, settings: &Settings, mine: Range<usize>) -> Self {
        let feedback = Feedback::new(settings.error_feedback, bucket.len, mine);
        Self { numbers: vec![0; bucket.len], feedback }
    }
}

impl Codec for Bf16 {
    fn encode(&mut self, _: &Bucket, _: &[u32], shares: &mut [Share<'_>], _: Key) {
        for (share, residual) in self.feedback.pairs(shares) {
            add_residual(share.gradients, residual);
            split(share.gradients, residual);
        }
        let Some((last, earlier)) = shares.split_last_mut() else { return };
        earlier.iter().for_each(|share| add_residual(last.gradients, share.gradients));
        narrow_all(last.gradients, &mut self.numbers);
    }

    fn send(&mut self, world: &World, _: &mut [Share<'_>]) -> Result<(), Error> {
        world.sum_bf16(&mut self.numbers)
    }

    fn decode(&mut self, _: &Bucket, _: &[u32], into: &mut [f32]) {
        widen_all(&self.numbers, into);
    }

    fn memory(&self) -> usize {
        size_of_val(self.numbers.as_slice()) + self.feedback.memory()
    }

    fn residual(&mut self, worker: usize) -> Option<&mut [f32]> {
        self.feedback.residual(worker)
    }
}

// Error feedback: the part of a worker's gradient that a biased codec loses is added to the worker's next gradient (Seide et al. 2014).
// There is one residual per worker, not per rank, so the number of ranks does not change the result.

simd! {
    pub(super) fn add_residual(gradients: &mut [f32], residual: &[f32]) {
        for (g, r) in gradients.iter_mut().zip(residual) {
            *g += r;
        }
    }
}

/// The residuals of this rank's workers for a whole bucket.
pub(super) struct Feedback {
    first: usize,
    residuals: Vec<Vec<f32>>,
}

impl Feedback {
    /// Creates residuals of zeros if error feedback is `on`, otherwise no residuals.
    pub fn new(on: bool, len: usize, mine: Range<usize>) -> Self {
        let residuals = if on { vec![vec![0.0; len]; mine.len()] } else { Vec::new() };
        Self { first: mine.start, residuals }
    }

    /// Iterates over the workers' shares of the bucket, each with its residual. Empty without error feedback.
    pub fn pairs<'a, 'b>(
        &'a mut self,
        shares: &'a mut [Share<'b>],
    ) -> impl Iterator<Item = (&'a mut Share<'b>, &'a mut Vec<f32>)> {
        shares.iter_mut().zip(&mut self.residuals)
    }

    /// Returns the residual of a worker, or `None` if this rank does not have it or error feedback is off.
    pub fn residual(&mut self, worker: usize) -> Option<&mut [f32]> {
        self.residuals.get_mut(worker.checked_sub(self.first)?).map(Vec::as_mut_slice)
    }

    pub fn memory(&self) -> usize {
        self.residuals.iter().map(|r| size_of_val(r.as_slice())).sum()
    }
}
