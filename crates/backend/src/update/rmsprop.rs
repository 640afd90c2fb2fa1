//! RMSProp in two variants, with slots s, b and, if centred, c.
//!
//! PyTorch: `s = alpha s + (1 - alpha) g g; b = m b + g / (sqrt(s) + eps); w -= lr b`.
//!
//! TensorFlow 1: `s = alpha s + (1 - alpha) g g; b = m b + lr g / sqrt(s + eps); w -= b`.
//!
//! The centred variant also computes `c += (1 - alpha) (g - c)` and uses `s - c c` instead of s in the root.

use schema::words;

use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule, flag};

/// The program whose formula is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmsPropVariant {
    #[default]
    Torch,
    Tf,
}

words! { RmsPropVariant { Torch = "torch", Tf = "tf" } }

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropRule {
    pub variant: RmsPropVariant,
    /// Decay of s, the mean square of the gradient.
    pub alpha: f64,
    /// Added to the denominator (PyTorch), or to s in the root (TensorFlow). Must be positive.
    pub eps: f64,
    pub momentum: f64,
    /// True to divide by the standard deviation instead of the root mean square.
    pub centered: bool,
    /// Only for the TensorFlow variant: true if the learning rate stays outside the momentum buffer, as in PyTorch.
    pub corrected: bool,
}

/// The part of a step that is the same for the centred and the plain mean square.
#[derive(Clone, Copy)]
struct Step<T> {
    lr: T,
    eps: T,
    momentum: T,
    /// True for TensorFlow's formula, with eps inside the root.
    tf: bool,
    /// True if the learning rate is inside the momentum buffer.
    within: bool,
}

impl<T: Real> Step<T> {
    /// Updates b and returns the new parameter. `square` is the mean square or the variance.
    #[inline(always)]
    fn apply(self, w: T, g: T, square: T, b: &mut T) -> T {
        let (zero, one) = (T::from_f64(0.0), T::from_f64(1.0));
        let (inside, outside) = if self.tf { (self.eps, zero) } else { (zero, self.eps) };
        let quotient = g / ((square + inside).sqrt() + outside);
        let (into, out) = if self.within { (self.lr, one) } else { (one, self.lr) };
        *b = self.momentum.mul_add(*b, into * quotient);
        (-out).mul_add(*b, w)
    }
}

impl UpdateRule for RmsPropRule {
    fn slots(&self) -> usize {
        2 + usize::from(self.centered)
    }

    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
        let gradient = group.gradient::<T>();
        let tf = self.variant == RmsPropVariant::Tf;
        let (lr, within) = (T::from_f64(group.lr), tf && !self.corrected);
        let step = Step { lr, eps: T::from_f64(self.eps), momentum: T::from_f64(self.momentum), tf, within };
        let (zero, rest) = (T::from_f64(0.0), T::from_f64(1.0 - self.alpha));
        if !self.centered {
            return elements.for_each_element(move |w, g, [square, b]: [&mut T; 2]| {
                let g = gradient.with_decay(w, g);
                *square = rest.mul_add(g.mul_add(g, -*square), *square);
                step.apply(w, g, *square, b)
            });
        }
        elements.for_each_element(move |w, g, [square, b, mean]: [&mut T; 3]| {
            let g = gradient.with_decay(w, g);
            *square = rest.mul_add(g.mul_add(g, -*square), *square);
            *mean = rest.mul_add(g - *mean, *mean);
            // rounding may make a variance slightly negative
            let variance = (-*mean).mul_add(*mean, *square).max(zero);
            step.apply(w, g, variance, b)
        })
    }

    fn kernel(&self) -> Kernel {
        let tensorflow = flag(self.variant == RmsPropVariant::Tf);
        let (centered, corrected) = (flag(self.centered), flag(self.corrected));
        let numbers = vec![self.alpha, 1.0 - self.alpha, self.eps, self.momentum, centered, tensorflow, corrected];
        Kernel { name: "update_rmsprop", numbers }
    }
}
