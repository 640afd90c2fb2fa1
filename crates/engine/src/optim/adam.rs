//! Adam (Kingma and Ba 2015, arXiv 1412.6980) with PyTorch's epsilon, and AdamW (Loshchilov and Hutter 2019, arXiv
//! 1711.05101), in which weight decay is not part of the moments.

use backend::Rule;
use backend::update::AdamRule;
use schema::{Range, Schema, Section, section};
use serde::Deserialize;
use serde::ser::SerializeMap;

use super::method::{Method, SlotSpec};

section! {
    /// a = beta1 a + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= lr a / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps).
    pub struct Adam {
        /// Decay of the average gradient.
        optional beta1: f64 = 0.9, in Range::Fraction;
        /// Decay of the average square of the gradient.
        optional beta2: f64 = 0.999, in Range::Fraction;
        /// Small number that keeps the denominator above 0.
        optional eps: f64 = 1e-8, in Range::PositiveF32;
    }
}

/// AdamW. It has the same settings as Adam.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct AdamW(pub Adam);

impl Section for AdamW {
    const SCHEMA: Schema = Schema {
        doc: "As adam, but first w -= lr weight_decay w, and g does not include weight decay. Default weight_decay: 0 (PyTorch: 0.01).",
        ..Adam::SCHEMA
    };

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.write_fields(map)
    }
}

/// Returns the factors that correct the bias of the averages, which start at 0.
pub(super) fn corrections(step: u64, beta1: f64, beta2: f64) -> [f64; 2] {
    let left = |beta: f64| 1.0 - beta.powf(step as f64);
    [left(beta1).recip(), left(beta2).sqrt().recip()]
}

impl Adam {
    fn step(&self, step: u64, momentum: Option<f64>, decoupled: bool) -> Rule {
        let (beta1, beta2) = (momentum.unwrap_or(self.beta1()), self.beta2());
        let [correction1, correction2] = corrections(step, beta1, beta2);
        Rule::Adam(AdamRule { beta1, beta2, eps: self.eps(), correction1, correction2, step, decoupled })
    }
}

impl Method for Adam {
    fn slots(&self) -> Vec<SlotSpec> {
        ["exp_avg", "exp_avg_sq"].map(SlotSpec::zero).to_vec()
    }

    fn rule(&self, step: u64, momentum: Option<f64>) -> Rule {
        self.step(step, momentum, false)
    }
}

impl Method for AdamW {
    fn slots(&self) -> Vec<SlotSpec> {
        self.0.slots()
    }

    fn rule(&self, step: u64, momentum: Option<f64>) -> Rule {
        self.0.step(step, momentum, true)
    }
}
