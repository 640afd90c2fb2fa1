//! Local response normalisation: attributes.

use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// y = x / (k + alpha * sum over |j - i| <= radius of x_j^2)^beta across channels (Krizhevsky et al. 2012, section
/// 3.3). `alpha` has TensorFlow's meaning: it is not divided by the window size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lrn {
    /// Number of neighbouring channels on each side.
    pub radius: usize,
    pub k: f32,
    pub alpha: f32,
    pub beta: f32,
}

impl OpSpec for Lrn {}

impl OpFormat for Lrn {
    const WORDS: &'static [&'static str] = &["lrn"];

    fn plain(_: &str) -> Self {
        Self { radius: 0, k: 1.0, alpha: 0.0, beta: 0.0 }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { radius, k, alpha, beta } = self;
        keys.needed("radius", radius);
        keys.needed("k", k);
        keys.needed("alpha", alpha);
        keys.needed("beta", beta);
    }
}
