//! Stochastic depth: its probability, and the random draws, which are the same on every backend.

use loaders::random::Draws;

use super::dropout::{DrawKey, FIRST_INDEX};
use super::spec::{OpSpec, Reads};

/// Zeroes a whole sample with this probability and multiplies the others by 1 / (1 - p); the identity in evaluation (Huang et al.
/// 2016, arXiv 1603.09382; torchvision's `StochasticDepth` by rows).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropPath(pub f32);

impl OpSpec for DropPath {
    fn kind(&self) -> &'static str {
        "drop_path"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

/// The factor of a row, from (seed, epoch, sample, op) alone.
pub(in crate::backend) fn factor(p: f32, index: u16, key: &DrawKey<'_>, row: usize) -> f32 {
    let mut draws = Draws::new(key.seed, key.ids[row], key.epoch, FIRST_INDEX | index);
    if draws.unit() < p { 0.0 } else { 1.0 / (1.0 - p) }
}
