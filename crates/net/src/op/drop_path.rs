//! Stochastic depth.

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
