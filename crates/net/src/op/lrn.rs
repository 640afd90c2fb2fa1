//! Local response normalisation: attributes.

use super::spec::{OpSpec, Reads};

/// y = x / (k + alpha * sum over |j - i| <= radius of x_j^2)^beta across channels (Krizhevsky et al. 2012, section 3.3).
/// `alpha` is TensorFlow's: not divided by the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lrn {
    /// Channels on each side.
    pub radius: usize,
    /// The bias k.
    pub k: f32,
    /// Weight of the squares.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
}

impl OpSpec for Lrn {
    fn kind(&self) -> &'static str {
        "lrn"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }
}
