//! Adagrad with slot s: `s += g g; w -= lr g / (sqrt(s) + eps)`, as in PyTorch.

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradRule {
    /// Added outside the root. Must be positive.
    pub eps: f64,
    /// Factor on the learning rate: 1 / (1 + (t - 1) lr_decay) at step t. Steps count from 1.
    pub lr_factor: f64,
    /// For devices that skip steps: a skipped step does not count in `lr_factor`.
    pub lr_decay: f64,
}

impl UpdateRule for AdagradRule {
    fn slots(&self) -> usize {
        1
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let (gradient, lr, eps) =
            (group.gradient::<T>(), T::from_f64(group.lr * self.lr_factor), T::from_f64(self.eps));
        elements.for_each_element(move |w, g, [sum]: [&mut T; 1]| {
            let g = gradient.with_decay(w, g);
            *sum = g.mul_add(g, *sum);
            (-lr).mul_add(g / (sum.sqrt() + eps), w)
        })
    }

    fn kernel(&self) -> Kernel {
        Kernel { name: "update_adagrad", numbers: vec![self.eps, self.lr_factor, self.lr_decay] }
    }
}
