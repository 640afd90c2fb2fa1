//! Lion (Chen et al. 2023, arXiv 2302.06675): steps of the same size in every element, in the direction of the sign of
//! a mean gradient.

use backend::Rule;
use backend::update::LionRule;
use schema::{Range, section};

use super::method::{Method, SlotSpec};

section! {
    /// w -= lr weight_decay w; w -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g. g does not include weight decay.
    /// Compared with adamw, use a rate that is 3 to 10 times smaller, and a weight decay that is larger by the same factor.
    pub struct Lion {
        /// Weight of the average gradient in the update direction.
        optional beta1: f64 = 0.9, in Range::Fraction;
        /// Decay of the average gradient.
        optional beta2: f64 = 0.99, in Range::Fraction;
    }
}

impl Method for Lion {
    fn slots(&self) -> Vec<SlotSpec> {
        vec![SlotSpec::zero("exp_avg")]
    }

    fn rule(&self, _step: u64, momentum: Option<f64>) -> Rule {
        Rule::Lion(LionRule { beta1: momentum.unwrap_or(self.beta1()), beta2: self.beta2() })
    }
}
