//! SGD with momentum, optionally in Nesterov's form. The learning rate is not part of the momentum buffer (w -= lr b),
//! so changes of the rate need no momentum correction (Goyal et al. 2017, arXiv 1706.02677, remark 2).

use backend::Rule;
use backend::update::SgdRule;
use schema::{Range, section};

use super::method::{Method, OptimizerError, SlotSpec};

section! {
    /// b = momentum b + g; w -= lr b. With Nesterov: w -= lr (g + momentum b). As in PyTorch, the momentum buffer does not include the
    /// rate.
    pub struct Sgd {
        /// Momentum.
        optional momentum: f64 = 0.0, in Range::Fraction;
        /// Whether to use Nesterov's form of momentum. Needs momentum > 0.
        optional nesterov: bool = false;
    }
}

impl Sgd {
    pub fn new(momentum: f64, nesterov: bool) -> Self {
        Self { momentum: Some(momentum), nesterov: Some(nesterov) }
    }
}

impl Method for Sgd {
    fn slots(&self) -> Vec<SlotSpec> {
        vec![SlotSpec::zero("momentum_buffer")]
    }

    fn rule(&self, _step: u64, momentum: Option<f64>) -> Rule {
        Rule::Sgd(SgdRule { momentum: momentum.unwrap_or(self.momentum()), nesterov: self.nesterov() })
    }

    fn check(&self) -> Result<(), OptimizerError> {
        if self.nesterov() && self.momentum() == 0.0 {
            return Err(OptimizerError { key: "nesterov", why: "needs optimizer.momentum > 0, such as 0.9".into() });
        }
        Ok(())
    }
}
