//! SGD with momentum m in slot b: `b = m b + g; w -= lr (nesterov ? g + m b : b)`. The learning rate is outside the
//! momentum buffer, as in PyTorch.

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule, flag};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdRule {
    pub momentum: f64,
    pub nesterov: bool,
}

impl UpdateRule for SgdRule {
    fn slots(&self) -> usize {
        1
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let (gradient, lr) = (group.gradient::<T>(), T::from_f64(group.lr));
        let (momentum, nesterov) = (T::from_f64(self.momentum), self.nesterov);
        elements.for_each_element(move |w, g, [b]: [&mut T; 1]| {
            let g = gradient.with_decay(w, g);
            *b = momentum.mul_add(*b, g);
            let step = if nesterov { momentum.mul_add(*b, g) } else { *b };
            (-lr).mul_add(step, w)
        })
    }

    fn kernel(&self) -> Kernel {
        Kernel { name: "update_sgd", numbers: vec![self.momentum, flag(self.nesterov)] }
    }
}
