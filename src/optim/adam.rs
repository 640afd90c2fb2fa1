//! Adam (Kingma and Ba 2015, arXiv 1412.6980) with PyTorch's epsilon, and AdamW (Loshchilov and Hutter 2019, arXiv
//! 1711.05101), whose weight decay does not pass through the moments.

use super::{Entry, Method, OptimizerSpec};
use crate::backend::Rule;

/// Its line in the catalogue.
pub(super) const ADAM: Entry =
    Entry { name: "adam", keys: &["beta1", "beta2", "eps"], build: |spec| Box::new(Adam::new(spec, false)) };

/// AdamW's line in the catalogue.
pub(super) const ADAMW: Entry =
    Entry { name: "adamw", keys: &["beta1", "beta2", "eps"], build: |spec| Box::new(Adam::new(spec, true)) };

/// Adam's settings.
#[derive(Clone, Copy, Debug)]
struct Adam {
    beta1: f64,
    beta2: f64,
    eps: f64,
    decoupled: bool,
}

impl Adam {
    fn new(spec: &OptimizerSpec, decoupled: bool) -> Self {
        let (beta1, beta2) = (spec.beta1.unwrap_or(0.9), spec.beta2.unwrap_or(0.999));
        Self { beta1, beta2, eps: spec.eps.unwrap_or(1e-8), decoupled }
    }
}

impl Method for Adam {
    fn slots(&self) -> &'static [(&'static str, f32)] {
        &[("exp_avg", 0.0), ("exp_avg_sq", 0.0)]
    }

    fn rule(&self, step: u64) -> Rule {
        let Self { beta1, beta2, eps, decoupled } = *self;
        let left = |beta: f64| 1.0 - beta.powf(step as f64);
        Rule::Adam {
            beta1,
            beta2,
            eps,
            correction1: left(beta1).recip(),
            correction2: left(beta2).sqrt().recip(),
            decoupled,
        }
    }
}
