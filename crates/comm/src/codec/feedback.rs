//! Error feedback: what a biased codec cuts off a worker's gradient is added to the next one (Seide et al. 2014). One residual a
//! worker, never one a rank, so that ranks still change nothing.

use std::ops::Range;

use base::simd;

use super::bucket::Share;

simd! {
    /// `gradients += residual`.
    pub(super) fn add(gradients: &mut [f32], residual: &[f32]) {
        for (g, r) in gradients.iter_mut().zip(residual) {
            *g += r;
        }
    }
}

/// The residuals of this rank's workers, for all of a bucket.
pub(super) struct Feedback {
    first: usize,
    residuals: Vec<Vec<f32>>,
}

impl Feedback {
    /// Zeros; none at all unless it is `on`.
    pub fn new(on: bool, len: usize, mine: Range<usize>) -> Self {
        let residuals = if on { vec![vec![0.0; len]; mine.len()] } else { Vec::new() };
        Self { first: mine.start, residuals }
    }

    /// Each share with its worker's residual; nothing without error feedback.
    pub fn pairs<'a, 'b>(
        &'a mut self,
        shares: &'a mut [Share<'b>],
    ) -> impl Iterator<Item = (&'a mut Share<'b>, &'a mut Vec<f32>)> {
        shares.iter_mut().zip(&mut self.residuals)
    }

    /// One worker's.
    pub fn of(&mut self, worker: usize) -> Option<&mut [f32]> {
        self.residuals.get_mut(worker.checked_sub(self.first)?).map(Vec::as_mut_slice)
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.residuals.iter().map(|r| size_of_val(r.as_slice())).sum()
    }
}
