//! The trait for update rules, the number types in which they are computed (f32 on the CPU, f64 in the reference), and
//! the trait for a backend's loop over elements.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Values that apply to all elements of a parameter group in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStep {
    /// Factor on the gradient from clipping by norm.
    pub gradient_factor: f64,
    pub weight_decay: f64,
    /// Learning rate including the group's trust ratio: `step_lr * group_factor`.
    pub lr: f64,
    /// Learning rate of the step, without the group's factor.
    pub step_lr: f64,
    /// The group's factor on the learning rate, including the group's trust ratio.
    pub group_factor: f64,
}

impl GroupStep {
    /// Returns the function that computes this group's gradients.
    pub fn gradient<T: Real>(&self) -> DecayedGradient<T> {
        DecayedGradient { decay: T::from_f64(self.weight_decay), factor: T::from_f64(self.gradient_factor) }
    }
}

/// Computes gradients with weight decay.
#[derive(Clone, Copy, Debug)]
pub struct DecayedGradient<T> {
    decay: T,
    factor: T,
}

impl<T: Real> DecayedGradient<T> {
    /// Returns `weight_decay w + gradient_factor g` for parameter w and gradient g.
    #[inline(always)]
    pub fn with_decay(self, w: T, g: T) -> T {
        self.decay.mul_add(w, self.factor * g)
    }
}

/// A backend's loop over elements of a parameter group.
pub trait ElementLoop<T> {
    /// Calls `update_element(parameter, gradient, slots)` for every element. `update_element` changes the element's
    /// slots and returns its new parameter. Returns true if all new parameters are finite.
    fn for_each_element<const S: usize>(self, update_element: impl Fn(T, T, [&mut T; S]) -> T + Copy) -> bool;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub name: &'static str,
    /// The rule's numbers for one step, at most eight. The kernel reads them from `numbers[2]` on.
    pub numbers: Vec<f64>,
}

pub trait UpdateRule {
    /// Returns the number of values that the rule keeps per parameter, at most three. For a rule with two passes, this
    /// includes the direction that the first pass stores.
    fn slots(&self) -> usize;

    /// Applies the rule to all elements of a group. Returns true if all new parameters are finite.
    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool;

    /// Returns the CUDA kernel and its numbers.
    fn kernel(&self) -> Kernel;

    /// Returns true if the rule adapts each tensor's learning rate, see [`UpdateRule::trust`].
    fn adapts(&self) -> bool {
        false
    }

    /// Returns a tensor's factor on the learning rate. `_weight` and `_gradient` are Euclidean norms. The gradient is
    /// clipped and does not include weight decay.
    fn trust(&self, _weight: f64, _gradient: f64, _weight_decay: f64, _lr: f64) -> f64 {
        1.0
    }

    /// Returns the second pass of a rule with two passes. The first pass writes a direction to the last slot and does
    /// not change the parameters. The second pass gets the directions instead of gradients, and rates adapt to the
    /// norms of the directions. The kernels of both passes read the same numbers.
    fn second_pass(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Converts a flag to 1 or 0, because the numbers of a kernel are all f64.
pub(super) fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// The number type of an update: f32 or f64.
pub trait Real:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    fn from_f64(x: f64) -> Self;

    /// Returns `self * a + b`. In f32 it is rounded once, so that all instruction sets give the same bits.
    fn mul_add(self, a: Self, b: Self) -> Self;

    fn sqrt(self) -> Self;

    fn max(self, other: Self) -> Self;

    /// Returns 1 or -1, or 0 for 0.
    fn sign(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as f32
    }

    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f32::mul_add(self, a, b)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        f32::max(self, other)
    }

    #[inline(always)]
    fn sign(self) -> Self {
        let below = if self < 0.0 { -1.0 } else { 0.0 };
        if self > 0.0 { 1.0 } else { below }
    }
}

impl Real for f64 {
    fn from_f64(x: f64) -> Self {
        x
    }

    fn mul_add(self, a: Self, b: Self) -> Self {
        self * a + b
    }

    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }

    fn max(self, other: Self) -> Self {
        f64::max(self, other)
    }

    fn sign(self) -> Self {
        if self == 0.0 { 0.0 } else { self.signum() }
    }
}
