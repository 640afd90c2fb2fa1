//! SGD with momentum and Nesterov's form. The learning rate stays outside the buffer (w -= lr b), so that a rate that changes
//! needs no momentum correction (Goyal et al. 2017, arXiv 1706.02677, remark 2).

use super::{Entry, Method};
use crate::backend::Rule;

/// Its line in the catalogue.
pub(super) const ENTRY: Entry = Entry {
    name: "sgd",
    keys: &["momentum", "nesterov"],
    build: |spec| Box::new(Sgd { momentum: spec.momentum.unwrap_or(0.0), nesterov: spec.nesterov.unwrap_or(false) }),
};

/// SGD's settings.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// In [0, 1).
    pub momentum: f64,
    /// The look-ahead; needs momentum > 0.
    pub nesterov: bool,
}

impl Method for Sgd {
    fn slots(&self) -> &'static [(&'static str, f32)] {
        &[("momentum_buffer", 0.0)]
    }

    fn rule(&self, _step: u64) -> Rule {
        Rule::Sgd { momentum: self.momentum, nesterov: self.nesterov }
    }
}
