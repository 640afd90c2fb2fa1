//! What one pass of an optimizer over a chunk computes: the rules with their formulas, in numbers that do not depend on a device.
//!
//! Every rule leaves an element at zero whose parameter, gradient and slots are zero, so the padding of blocked layouts stays
//! zero; those that divide by a root need `eps > 0` for it.

/// One stretch of a chunk with numbers of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// First element and one past the last.
    pub range: std::ops::Range<usize>,
    /// Multiplies the parameter, added to its gradient (see [`Rule::Adam`] for AdamW's).
    pub weight_decay: f32,
    /// Factor of the learning rate: a layer-wise trust ratio, 1 elsewhere.
    pub trust: f32,
}

/// One optimizer step. Of every rule `g` is `gradient_scale` times the gradient, plus `weight_decay` times the parameter w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// How slots and parameters move.
    pub rule: Rule,
    /// Learning rate of this step; below `lr` times the stretch's trust ratio.
    pub lr: f64,
    /// Factor of the gradient before all else: what clipping by norm leaves of it, 1 without.
    pub gradient_scale: f32,
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
    /// `v = m v + lr g; w -= v`: the rate inside the buffer, as You et al. 2017 (arXiv 1708.03888). Slot v.
    Lars {
        /// m.
        momentum: f64,
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
}
