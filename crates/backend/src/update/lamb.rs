//! LAMB with Adam's slots a and v (You et al. 2019, arXiv 1904.00962), as in timm. The first pass updates the moments
//! and computes the direction `r = correction1 a / (sqrt(v) correction2 + eps) + weight_decay w`. The second pass
//! computes `w -= lr |w| / |r| r` with the norms of the tensor.

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LambRule {
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
    /// True for the second pass, which moves the parameters along the direction of the first pass.
    pub second_pass: bool,
}

impl UpdateRule for LambRule {
    fn slots(&self) -> usize {
        if self.second_pass { 0 } else { 3 }
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let gradient = GroupStep { weight_decay: 0.0, ..group }.gradient::<T>();
        if self.second_pass {
            let lr = T::from_f64(group.lr);
            return elements.for_each_element(move |w, r, []: [&mut T; 0]| (-lr).mul_add(gradient.with_decay(w, r), w));
        }
        let (rest1, beta2, rest2) =
            (T::from_f64(1.0 - self.beta1), T::from_f64(self.beta2), T::from_f64(1.0 - self.beta2));
        let (correction1, correction2) = (T::from_f64(self.correction1), T::from_f64(self.correction2));
        let (eps, decay) = (T::from_f64(self.eps), T::from_f64(group.weight_decay));
        elements.for_each_element(move |w, g, [mean, square, direction]: [&mut T; 3]| {
            let g = gradient.with_decay(w, g);
            *mean = rest1.mul_add(g - *mean, *mean);
            *square = beta2.mul_add(*square, rest2 * g * g);
            let root = square.sqrt().mul_add(correction2, eps);
            *direction = decay.mul_add(w, correction1 * *mean / root);
            w
        })
    }

    /// `step_rates` in cuda/kernels/update.cu reads LARS's eta and larc from the second and third of these numbers.
    /// With eta = 1 and larc = 0, LARS's ratio becomes `|w| / |r|`.
    fn kernel(&self) -> Kernel {
        let Self { beta1, beta2, eps, correction1, correction2, step, second_pass } = *self;
        let name = if second_pass { "update_lamb_along" } else { "update_lamb" };
        Kernel { name, numbers: vec![beta1, 1.0, 0.0, beta2, eps, correction1, correction2, step as f64] }
    }

    fn adapts(&self) -> bool {
        self.second_pass
    }

    /// Returns `|w| / |r|`, or 1 if a norm is 0.
    fn trust(&self, weight: f64, direction: f64, _weight_decay: f64, _lr: f64) -> f64 {
        if weight == 0.0 || direction == 0.0 { 1.0 } else { weight / direction }
    }

    fn second_pass(&self) -> Option<Self> {
        (!self.second_pass).then_some(Self { second_pass: true, ..*self })
    }
}
