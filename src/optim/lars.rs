//! LARS: a learning rate for every tensor, in proportion to |w| / |g| (You, Gitman and Ginsburg 2017, arXiv 1708.03888):
//! lambda = eta |w| / (|g| + wd |w|), v = m v + lr lambda (g + wd w), w -= v. The trust ratio is inside the momentum; it is 1
//! where a norm is 0, and for tensors that `no_adapt` spares. LARC (NVCaffe's clip) takes min(lr, lambda) for lr lambda.

use super::{Entry, Method, Norms};
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
        Rule::Lars { momentum: self.momentum }
    }

    fn adapts(&self) -> bool {
        true
    }

    fn trust(&self, norms: Norms, weight_decay: f64, lr: f64) -> f64 {
        let Norms { weight, gradient } = norms;
        if weight == 0.0 || gradient == 0.0 {
            return 1.0;
        }
        let lambda = self.eta * weight / (gradient + weight_decay * weight);
        match self.larc {
            true if lr > 0.0 => (lambda / lr).min(1.0),
            _ => lambda,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ratios_by_hand() {
        let lars = Lars { momentum: 0.9, eta: 0.01, larc: false };
        let norms = Norms { weight: 4.0, gradient: 0.5 };
        assert_eq!(lars.trust(norms, 0.0, 3.0), 0.08);
        assert_eq!(lars.trust(norms, 0.125, 3.0), 0.04);
        assert_eq!(lars.trust(Norms { weight: 0.0, ..norms }, 0.0, 3.0), 1.0);
        assert_eq!(lars.trust(Norms { gradient: 0.0, ..norms }, 0.1, 3.0), 1.0);
        let larc = Lars { larc: true, ..lars };
        assert_eq!(larc.trust(norms, 0.0, 0.16), 0.5);
        assert_eq!(larc.trust(norms, 0.0, 0.01), 1.0);
        assert_eq!(larc.trust(norms, 0.0, 0.0), 0.08);
    }
}
