//! RMSProp in two variants. PyTorch's has eps outside the root, the learning rate outside the momentum, and a mean
//! square that starts at 0. TensorFlow 1's has eps inside the root, the rate inside the momentum, and starts at 1. With
//! eps = 1, as in Inception's recipe, they are quite different optimizers.

use backend::Rule;
use backend::update::{RmsPropRule, RmsPropVariant};
use schema::{Range, section};

use super::method::{Method, OptimizerError, SlotSpec};

section! {
    /// s = alpha s + (1 - alpha) g^2. "torch": b = momentum b + g / (sqrt(s) + eps); w -= lr b. "tf" (s starts at 1, as in Inception's
    /// recipes): b = momentum b + lr g / sqrt(s + eps); w -= b.
    pub struct RmsProp {
        /// Momentum.
        optional momentum: f64 = 0.0, in Range::Fraction;
        /// Formula: that of PyTorch or of TensorFlow 1.
        optional form: RmsPropVariant = RmsPropVariant::Torch;
        /// Decay of the average square of the gradient. TensorFlow calls it decay.
        absent alpha: f64 = "0.99; tf: 0.9", in Range::Fraction;
        /// Small number that keeps the denominator above 0.
        absent eps: f64 = "1e-8; tf: 1e-10", in Range::PositiveF32;
        /// Whether to divide by the standard deviation of the gradient instead of its root mean square.
        optional centered: bool = false;
        /// Form "tf" only: whether a change of the rate also applies to the momentum: b = momentum b + g / sqrt(s + eps); w -= lr b.
        optional momentum_correction: bool = false;
    }
}

impl Method for RmsProp {
    fn slots(&self) -> Vec<SlotSpec> {
        let start = match self.form() {
            RmsPropVariant::Torch => 0.0,
            RmsPropVariant::Tf => 1.0,
        };
        let mut slots = vec![SlotSpec { name: "square_avg", start }, SlotSpec::zero("momentum_buffer")];
        slots.extend(self.centered().then_some(SlotSpec::zero("grad_avg")));
        slots
    }

    fn rule(&self, _step: u64, momentum: Option<f64>) -> Rule {
        let (alpha, eps) = match self.form() {
            RmsPropVariant::Torch => (0.99, 1e-8),
            RmsPropVariant::Tf => (0.9, 1e-10),
        };
        Rule::RmsProp(RmsPropRule {
            variant: self.form(),
            alpha: self.alpha.unwrap_or(alpha),
            eps: self.eps.unwrap_or(eps),
            momentum: momentum.unwrap_or(self.momentum()),
            centered: self.centered(),
            corrected: self.momentum_correction(),
        })
    }

    fn check(&self) -> Result<(), OptimizerError> {
        if self.momentum_correction() && self.form() == RmsPropVariant::Torch {
            let why = "applies only to form = \"tf\"; form = \"torch\" needs no correction".into();
            return Err(OptimizerError { key: "momentum_correction", why });
        }
        Ok(())
    }
}
