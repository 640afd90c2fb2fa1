//! Lion with slot m: `w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); m = beta2 m + (1 - beta2) g`. Here g
//! does not include weight decay (Chen et al. 2023, arXiv 2302.06675, algorithm 2).

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionRule {
    /// Weight of m in the direction.
    pub beta1: f64,
    /// Decay of m, the mean gradient.
    pub beta2: f64,
}

impl UpdateRule for LionRule {
    fn slots(&self) -> usize {
        1
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let gradient = GroupStep { weight_decay: 0.0, ..group }.gradient::<T>();
        let (beta1, rest1) = (T::from_f64(self.beta1), T::from_f64(1.0 - self.beta1));
        let (lr, rest2) = (T::from_f64(group.lr), T::from_f64(1.0 - self.beta2));
        let (keep, zero) = (T::from_f64(1.0 - group.lr * group.weight_decay), T::from_f64(0.0));
        elements.for_each_element(move |w, g, [mean]: [&mut T; 1]| {
            let g = gradient.with_decay(w, g);
            let direction = beta1.mul_add(*mean, rest1 * g);
            *mean = rest2.mul_add(g - *mean, *mean);
            // a direction that is not finite must reach the parameter
            (-lr).mul_add(direction.mul_add(zero, direction.sign()), w * keep)
        })
    }

    fn kernel(&self) -> Kernel {
        let Self { beta1, beta2 } = *self;
        Kernel { name: "update_lion", numbers: vec![beta1, 1.0 - beta1, 1.0 - beta2] }
    }
}
