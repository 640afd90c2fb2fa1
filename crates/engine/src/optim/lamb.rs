//! LAMB (You et al. 2019, arXiv 1904.00962), for large batches: Adam's direction, with a step length for each tensor.
//! It has timm's formulas.

use backend::Rule;
use backend::update::LambRule;
use schema::{Range, section};

use super::adam::corrections;
use super::method::{Method, SlotSpec};

section! {
    /// a and v as in adam, where g does not include weight decay. r = a / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w.
    /// For each tensor, w -= lr norm(w) / norm(r) r.
    pub struct Lamb {
        /// Decay of the average gradient.
        optional beta1: f64 = 0.9, in Range::Fraction;
        /// Decay of the average square of the gradient.
        optional beta2: f64 = 0.999, in Range::Fraction;
        /// Small number that keeps the denominator above 0.
        optional eps: f64 = 1e-6, in Range::PositiveF32;
        /// Whether parameters without weight decay are also scaled by norm(w) / norm(r). With false, their update is w -= lr r.
        optional always_adapt: bool = false;
    }
}

impl Method for Lamb {
    fn slots(&self) -> Vec<SlotSpec> {
        ["exp_avg", "exp_avg_sq"].map(SlotSpec::zero).to_vec()
    }

    fn rule(&self, step: u64, momentum: Option<f64>) -> Rule {
        let (beta1, beta2) = (momentum.unwrap_or(self.beta1()), self.beta2());
        let [correction1, correction2] = corrections(step, beta1, beta2);
        Rule::Lamb(LambRule { beta1, beta2, eps: self.eps(), correction1, correction2, step, second_pass: false })
    }

    fn adapts(&self, _parameter: &str, _shape: &[usize], weight_decay: f64) -> bool {
        self.always_adapt() || weight_decay != 0.0
    }
}
