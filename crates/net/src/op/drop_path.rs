//! Stochastic depth.

use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, OpFormat};

/// In training, sets a whole sample to zero with this probability p and multiplies the other samples by 1 / (1 - p). In
/// evaluation, the identity (Huang et al. 2016, arXiv 1603.09382, as torchvision's `StochasticDepth` in row mode).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropPath(pub f32);

impl OpSpec for DropPath {
    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

impl OpFormat for DropPath {
    const WORDS: &'static [&'static str] = &["drop_path"];

    fn plain(_: &str) -> Self {
        Self(0.0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.rate("rate", &mut self.0);
    }
}
