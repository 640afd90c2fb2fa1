//! Adam with slots a and v: `a += (1 - beta1) (g - a); v = beta2 v + (1 - beta2) g g;
//! w -= lr correction1 a / (sqrt(v) correction2 + eps)`.

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule, flag};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamRule {
    /// Decay of a, the mean gradient.
    pub beta1: f64,
    /// Decay of v, the mean square of the gradient.
    pub beta2: f64,
    /// Added outside the root. Must be positive.
    pub eps: f64,
    /// 1 / (1 - beta1^t) at step t. Steps count from 1.
    pub correction1: f64,
    /// 1 / sqrt(1 - beta2^t) at step t.
    pub correction2: f64,
    /// Number t of the step, for devices that skip steps: a skipped step does not count in the corrections.
    pub step: u64,
    /// True for AdamW: the weight decay first multiplies the parameter by `1 - lr weight_decay` and is not part of g.
    pub decoupled: bool,
}

impl UpdateRule for AdamRule {
    fn slots(&self) -> usize {
        2
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let decoupled_decay = if self.decoupled { group.weight_decay } else { 0.0 };
        let keep = T::from_f64(1.0 - group.lr * decoupled_decay);
        let coupled_decay = if self.decoupled { 0.0 } else { group.weight_decay };
        let gradient = GroupStep { weight_decay: coupled_decay, ..group }.gradient::<T>();
        let (rest1, beta2, rest2) =
            (T::from_f64(1.0 - self.beta1), T::from_f64(self.beta2), T::from_f64(1.0 - self.beta2));
        let (step, correction2) = (T::from_f64(group.lr * self.correction1), T::from_f64(self.correction2));
        let eps = T::from_f64(self.eps);
        elements.for_each_element(move |w, g, [mean, square]: [&mut T; 2]| {
            let g = gradient.with_decay(w, g);
            *mean = rest1.mul_add(g - *mean, *mean);
            *square = beta2.mul_add(*square, rest2 * g * g);
            let root = square.sqrt().mul_add(correction2, eps);
            (-step).mul_add(*mean / root, w * keep)
        })
    }

    fn kernel(&self) -> Kernel {
        let Self { beta1, beta2, eps, correction1, correction2, step, decoupled } = *self;
        let numbers = vec![beta1, beta2, eps, correction1, correction2, step as f64, flag(decoupled)];
        Kernel { name: "update_adam", numbers }
    }
}
