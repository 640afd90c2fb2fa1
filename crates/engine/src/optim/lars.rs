//! LARS (You, Gitman and Ginsburg 2017, arXiv 1708.03888): a learning rate for each tensor, in proportion to |w| / |g|:
//! lambda = eta |w| / (|g| + wd |w|), v = m v + lr lambda (g + wd w), w -= v.
//!
//! The momentum buffer v accumulates gradients that are already multiplied by the trust ratio lambda. lambda is 1 if a
//! norm is 0, and for tensors that match `no_adapt`. LARC (the clip option of NVCaffe) uses min(lr, lambda) instead of
//! lr lambda.

use backend::Rule;
use backend::update::LarsRule;
use schema::{Range, matches, section};

use super::method::{Method, SlotSpec};

section! {
    /// For each tensor, lambda = eta norm(w) / (norm(g without decay) + weight_decay norm(w)). b = momentum b + lr lambda g; w -= b.
    pub struct Lars {
        /// Momentum.
        optional momentum: f64 = 0.9, in Range::Fraction;
        /// Trust coefficient.
        optional eta: f64 = 0.001, in Range::PositiveF32;
        /// Whether the rate of a tensor is min(lr, lambda) instead of lr lambda (LARC).
        optional larc: bool = false;
        /// Whether a change of the rate also applies to the momentum (momentum correction, Goyal et al. 2017): b = momentum b + lambda g; w
        /// -= lr b.
        optional momentum_correction: bool = false;
        /// Patterns of parameters that use the plain learning rate (lambda = 1).
        absent no_adapt: Vec<String> = "all of one dimension";
    }
}

impl Method for Lars {
    fn slots(&self) -> Vec<SlotSpec> {
        vec![SlotSpec::zero("momentum_buffer")]
    }

    fn rule(&self, _step: u64, momentum: Option<f64>) -> Rule {
        let (momentum, corrected) = (momentum.unwrap_or(self.momentum()), self.momentum_correction());
        Rule::Lars(LarsRule { momentum, eta: self.eta(), larc: self.larc(), corrected })
    }

    fn adapts(&self, parameter: &str, shape: &[usize], _weight_decay: f64) -> bool {
        match &self.no_adapt {
            Some(patterns) => !patterns.iter().any(|pattern| matches(pattern, parameter)),
            None => has_several_dimensions(shape),
        }
    }

    fn decays(&self, shape: &[usize]) -> bool {
        has_several_dimensions(shape)
    }
}

/// Returns false for biases and the parameters of batch normalisation.
fn has_several_dimensions(shape: &[usize]) -> bool {
    shape.len() != 1
}
