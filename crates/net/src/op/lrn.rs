//! Local response normalisation: attributes.

use super::spec::{OpSpec, Reads};

/// y = x / (k + alpha * sum over |j - i| <= radius of x_j^2)^beta across channels (Krizhevsky et al. 2012, section
/// 3.3). `alpha` has TensorFlow's meaning: it is not divided by the window size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lrn {
    /// Channels on each side.
    pub radius: usize,
    pub k: f32,
    pub alpha: f32,
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
