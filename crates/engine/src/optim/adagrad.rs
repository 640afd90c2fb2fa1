//! Adagrad (Duchi, Hazan and Singer 2011, JMLR 12), with PyTorch's settings.

use backend::Rule;
use backend::update::AdagradRule;
use schema::{Range, section};

use super::method::{Method, SlotSpec};

section! {
    /// s = s + g^2; w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
    pub struct Adagrad {
        /// Decay of the learning rate with the number of steps, in addition to the schedule.
        optional lr_decay: f64 = 0.0, in Range::AtLeast(0.0);
        /// Initial value of the sums of squares.
        optional initial_accumulator_value: f64 = 0.0, in Range::NonNegativeF32;
        /// Small number that keeps the denominator above 0.
        optional eps: f64 = 1e-10, in Range::PositiveF32;
    }
}

impl Method for Adagrad {
    fn slots(&self) -> Vec<SlotSpec> {
        vec![SlotSpec { name: "sum", start: self.initial_accumulator_value() as f32 }]
    }

    fn rule(&self, step: u64, _momentum: Option<f64>) -> Rule {
        let lr_decay = self.lr_decay();
        let lr_factor = (1.0 + (step as f64 - 1.0) * lr_decay).recip();
        Rule::Adagrad(AdagradRule { eps: self.eps(), lr_factor, lr_decay })
    }
}
