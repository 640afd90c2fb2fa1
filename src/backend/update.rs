//! What one step of an optimizer computes: the rules with their formulas, what norms make of them, in numbers that do not depend on a
//! device.
//!
//! Every rule leaves an element at zero whose parameter, gradient and slots are zero, so the padding of blocked layouts stays
//! zero; those that divide by a root need `eps > 0` for it.

use std::ops::Range;

/// One stretch of a chunk with numbers of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// First element and one past the last.
    pub range: Range<usize>,
    /// Multiplies the parameter, added to its gradient (see [`Rule::Adam`] for AdamW's).
    pub weight_decay: f32,
    /// Which of [`rates`] is the factor of its learning rate.
    pub rate: usize,
}

/// One optimizer step. Of every rule `g` is the gradient, as far as clipping by norm leaves it, plus `weight_decay` times the
/// parameter w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// How slots and parameters move.
    pub rule: Rule,
    /// Learning rate of this step; below `lr` times the stretch's rate.
    pub lr: f64,
}

/// What all updates of a step are given beside their own chunk, and where a buffer of them has it. From [`rates::FIRST`] on the trust
/// ratios of the tensors (1 where there is none), in the order of [`Norms::tensors`].
pub mod rates {
    /// Factor of all gradients: what clipping by norm leaves of them, 1 without.
    pub const GRADIENT: usize = 0;
    /// Norm of all gradients together, before it is limited.
    pub const NORM: usize = 1;
    /// 1: of stretches without a ratio of their own.
    pub const PLAIN: usize = 2;
    /// Where the tensors' begin.
    pub const FIRST: usize = 3;

    /// Those of a step without norms, with room for so many tensors.
    pub fn plain(tensors: usize) -> Vec<f32> {
        [vec![1.0, 0.0], vec![1.0; 1 + tensors]].concat()
    }
}

/// One tensor, as far as its norms go.
#[derive(Clone, Debug, PartialEq)]
pub struct Normed {
    /// Its place in the chunk.
    pub range: Range<usize>,
    /// As its stretch has it.
    pub weight_decay: f64,
    /// Whether the rule may give it a rate of its own.
    pub adapts: bool,
}

/// What makes the [`rates`] of a step from the norms of tensors.
#[derive(Clone, Debug, Default)]
pub struct Norms {
    /// Chunk by chunk.
    pub tensors: Vec<Vec<Normed>>,
    /// Largest norm of all gradients together.
    pub limit: Option<f64>,
}

impl Norms {
    /// Added to the norm before a limit is divided by it, as PyTorch's `clip_grad_norm_`.
    pub const EPS: f64 = 1e-6;

    /// The [`rates`], from the sums of squares of all tensors: `gradients`, and, where the rule adapts rates, `weights`.
    pub fn rates(&self, update: &Update, gradients: &[f64], weights: &[f64]) -> Vec<f32> {
        let norm = gradients.iter().sum::<f64>().sqrt();
        // a norm that is NaN must reach the parameters, where it is found
        let part = self.limit.map(|limit| limit / (norm + Self::EPS)).filter(|part| *part < 1.0 || part.is_nan());
        let part = part.unwrap_or(1.0);
        let mut values = rates::plain(gradients.len());
        (values[rates::GRADIENT], values[rates::NORM]) = (part as f32, norm as f32);
        let squares = self.tensors.iter().flatten().zip(gradients.iter().zip(weights));
        for (rate, (tensor, (g, w))) in values[rates::FIRST..].iter_mut().zip(squares).filter(|(_, (t, _))| t.adapts) {
            *rate = update.rule.trust(w.sqrt(), part * g.sqrt(), tensor.weight_decay, update.lr) as f32;
        }
        values
    }
}

/// An update rule with its numbers for one step. Slots in the order in which each names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// `b = m b + g; w -= lr (nesterov ? g + m b : b)`: the rate outside the buffer, as PyTorch. Slot b.
    Sgd {
        /// m.
        momentum: f64,
        /// The look-ahead.
        nesterov: bool,
    },
    /// `v = m v + lr g; w -= v`: the rate inside the buffer, as You et al. 2017 (arXiv 1708.03888). Slot v. See [`Rule::trust`].
    Lars {
        /// m.
        momentum: f64,
        /// Trust coefficient.
        eta: f64,
        /// NVCaffe's clip: a tensor's own rate is at most the learning rate.
        larc: bool,
    },
    /// `a += (1 - beta1) (g - a); v = beta2 v + (1 - beta2) g g; w -= lr correction1 a / (sqrt(v) correction2 + eps)`.
    /// Slots a, v.
    Adam {
        /// Decay of the mean a.
        beta1: f64,
        /// Decay of the mean square v.
        beta2: f64,
        /// Outside the root, > 0.
        eps: f64,
        /// 1 / (1 - beta1^t) at step t, from 1.
        correction1: f64,
        /// 1 / sqrt(1 - beta2^t).
        correction2: f64,
        /// AdamW: the decay shrinks the parameter by `lr weight_decay` beforehand instead of entering g.
        decoupled: bool,
    },
    /// `s = alpha s + (1 - alpha) g g; b = m b + g / (sqrt(s) + eps); w -= lr b`: PyTorch's. Slots s, b and, centred, c:
    /// `c += (1 - alpha) (g - c)`, and `s - c c` takes the place of s in the root.
    RmsPropTorch(RmsProp),
    /// `s += (1 - alpha) (g g - s); b = m b + lr g / sqrt(s + eps); w -= b`: TensorFlow 1's. Slots as PyTorch's.
    RmsPropTf(RmsProp),
}

/// What both forms of RMSProp need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Decay of the mean square.
    pub alpha: f64,
    /// > 0.
    pub eps: f64,
    /// m.
    pub momentum: f64,
    /// Divide by the deviation instead of the root mean square.
    pub centered: bool,
}

impl Rule {
    /// Values that it keeps per parameter.
    pub fn slots(&self) -> usize {
        match self {
            Rule::Sgd { .. } | Rule::Lars { .. } => 1,
            Rule::Adam { .. } => 2,
            Rule::RmsPropTorch(r) | Rule::RmsPropTf(r) => 2 + usize::from(r.centered),
        }
    }

    /// Whether tensors have rates of their own.
    pub fn adapts(&self) -> bool {
        matches!(self, Rule::Lars { .. })
    }

    /// Factor of a tensor's learning rate by the Euclidean norms of its parameter and of its gradient, as far as clipping leaves it,
    /// without weight decay. LARS: `eta |w| / (|g| + wd |w|)`, 1 where a norm is 0; LARC takes the smaller of it and `lr` for the rate.
    pub fn trust(&self, weight: f64, gradient: f64, weight_decay: f64, lr: f64) -> f64 {
        match *self {
            Rule::Lars { eta, larc, .. } if weight != 0.0 && gradient != 0.0 => {
                let lambda = eta * weight / (gradient + weight_decay * weight);
                if larc && lr > 0.0 { (lambda / lr).min(1.0) } else { lambda }
            }
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ratios_by_hand() {
        let lars = |larc| Rule::Lars { momentum: 0.9, eta: 0.01, larc };
        let ratio = |weight, gradient, decay, lr| lars(false).trust(weight, gradient, decay, lr);
        assert_eq!(ratio(4.0, 0.5, 0.0, 3.0), 0.08);
        assert_eq!(ratio(4.0, 0.5, 0.125, 3.0), 0.04);
        assert_eq!(ratio(0.0, 0.5, 0.0, 3.0), 1.0);
        assert_eq!(ratio(4.0, 0.0, 0.1, 3.0), 1.0);
        let larc = |lr| lars(true).trust(4.0, 0.5, 0.0, lr);
        assert_eq!([0.16, 0.01, 0.0].map(larc), [0.5, 1.0, 0.08]);
    }
}
