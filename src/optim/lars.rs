//! LARS: a learning rate for every tensor, in proportion to |w| / |g| (You, Gitman and Ginsburg 2017, arXiv 1708.03888):
//! lambda = eta |w| / (|g| + wd |w|), v = m v + lr lambda (g + wd w), w -= v. The trust ratio is inside the momentum; it is 1
//! where a norm is 0, and for tensors that `no_adapt` spares. LARC (NVCaffe's clip) takes min(lr, lambda) for lr lambda.

use super::{Entry, Method};
use crate::backend::Rule;

/// Its line in the catalogue.
pub(super) const ENTRY: Entry = Entry {
    name: "lars",
    keys: &["momentum", "eta", "larc", "no_adapt"],
    build: |spec| {
        Box::new(Lars {
            momentum: spec.momentum.unwrap_or(0.9),
            eta: spec.eta.unwrap_or(0.001),
            larc: spec.larc.unwrap_or(false),
        })
    },
};

/// LARS's settings.
#[derive(Clone, Copy, Debug)]
struct Lars {
    momentum: f64,
    eta: f64,
    larc: bool,
}

impl Method for Lars {
    fn slots(&self) -> &'static [(&'static str, f32)] {
        &[("momentum_buffer", 0.0)]
    }

    fn rule(&self, _step: u64) -> Rule {
        Rule::Lars { momentum: self.momentum, eta: self.eta, larc: self.larc }
    }
}
