//! LARS with momentum m in slot v: `v = m v + lr g; w -= v`. The learning rate is inside the momentum buffer, as in You
//! et al. 2017 (arXiv 1708.03888). Each tensor's lr includes its trust ratio.

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule, flag};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LarsRule {
    pub momentum: f64,
    /// Trust coefficient, the factor on `|w| / |g|`.
    pub eta: f64,
    /// True to use LARC's clipping as in NVCaffe: a tensor's own rate is at most the learning rate.
    pub larc: bool,
    /// True if the learning rate is outside the momentum buffer: `v = m v + lambda g; w -= lr v`, where lambda is the
    /// trust ratio.
    pub corrected: bool,
}

impl UpdateRule for LarsRule {
    fn slots(&self) -> usize {
        1
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let (gradient, momentum) = (group.gradient::<T>(), T::from_f64(self.momentum));
        if self.corrected {
            let (own, lr) = (T::from_f64(group.group_factor), T::from_f64(group.step_lr));
            return elements.for_each_element(move |w, g, [v]: [&mut T; 1]| {
                *v = momentum.mul_add(*v, own * gradient.with_decay(w, g));
                (-lr).mul_add(*v, w)
            });
        }
        let lr = T::from_f64(group.lr);
        elements.for_each_element(move |w, g, [v]: [&mut T; 1]| {
            *v = momentum.mul_add(*v, lr * gradient.with_decay(w, g));
            w - *v
        })
    }

    /// `step_rates` in cuda/kernels/update.cu reads eta and larc.
    fn kernel(&self) -> Kernel {
        Kernel { name: "update_lars", numbers: vec![self.momentum, self.eta, flag(self.larc), flag(self.corrected)] }
    }

    fn adapts(&self) -> bool {
        true
    }

    /// Returns `eta |w| / (|g| + weight_decay |w|)`, or 1 if a norm is 0. With LARC, the resulting rate of the tensor
    /// is at most `lr`.
    fn trust(&self, weight: f64, gradient: f64, weight_decay: f64, lr: f64) -> f64 {
        if weight == 0.0 || gradient == 0.0 {
            return 1.0;
        }
        let lambda = self.eta * weight / (gradient + weight_decay * weight);
        if self.larc && lr > 0.0 { (lambda / lr).min(1.0) } else { lambda }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ratios_match_hand_computed_values() {
        let lars = |larc| LarsRule { momentum: 0.9, eta: 0.01, larc, corrected: false };
        let ratio = |weight, gradient, decay, lr| lars(false).trust(weight, gradient, decay, lr);
        assert_eq!(ratio(4.0, 0.5, 0.0, 3.0), 0.08);
        assert_eq!(ratio(4.0, 0.5, 0.125, 3.0), 0.04);
        assert_eq!(ratio(0.0, 0.5, 0.0, 3.0), 1.0);
        assert_eq!(ratio(4.0, 0.0, 0.1, 3.0), 1.0);
        let larc = |lr| lars(true).trust(4.0, 0.5, 0.0, lr);
        assert_eq!([0.16, 0.01, 0.0].map(larc), [0.5, 1.0, 0.08]);
    }
}
