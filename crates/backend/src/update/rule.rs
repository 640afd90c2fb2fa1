//! The trait of an update rule, the numbers in which it is computed (f32 on the CPU, f64 in the reference), and the loop that a backend
//! runs it in.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// What holds for all elements of a parameter group in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStep {
    /// What clipping by norm leaves of the gradient.
    pub gradient_factor: f64,
    /// Coefficient of the weight decay.
    pub weight_decay: f64,
    /// Learning rate, the group's trust ratio included: `base * own`.
    pub lr: f64,
    /// Learning rate of the step.
    pub base: f64,
    /// Factor of the group, its trust ratio included.
    pub own: f64,
}

impl GroupStep {
    /// How the gradient of this group is made.
    pub fn gradient<T: Real>(&self) -> DecayedGradient<T> {
        DecayedGradient { decay: T::of(self.weight_decay), factor: T::of(self.gradient_factor) }
    }
}

/// Adds the weight decay to the gradient.
#[derive(Clone, Copy, Debug)]
pub struct DecayedGradient<T> {
    decay: T,
    factor: T,
}

impl<T: Real> DecayedGradient<T> {
    /// From parameter w and gradient g to `weight_decay w + gradient_factor g`.
    #[inline(always)]
    pub fn of(self, w: T, g: T) -> T {
        self.decay.mul_add(w, self.factor * g)
    }
}

/// A backend's loop over the elements of (a part of) a parameter group.
pub trait ElementLoop<T> {
    /// Calls `one(parameter, gradient, slots)` for every element. It changes the element's slots and returns its new parameter.
    /// True if all new parameters are finite.
    fn each<const S: usize>(self, one: impl Fn(T, T, [&mut T; S]) -> T + Copy) -> bool;
}

/// The CUDA kernel of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// The rule's numbers for one step, as the kernel reads them from `numbers[2]` on; at most eight.
    pub numbers: Vec<f64>,
}

/// An update rule with its numbers for one step.
pub trait UpdateRule {
    /// Values that it keeps per parameter, at most three; of a rule in two passes, the direction of the first included.
    fn slots(&self) -> usize;

    /// Runs its formula over all elements of a group; true if all new parameters are finite.
    fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool;

    /// Its CUDA kernel.
    fn kernel(&self) -> Kernel;

    /// Whether tensors have learning rates of their own, see [`UpdateRule::trust`].
    fn adapts(&self) -> bool {
        false
    }

    /// Factor of a tensor's learning rate, from the Euclidean norms of its parameter and of its gradient, which is clipped and without
    /// weight decay.
    fn trust(&self, _weight: f64, _gradient: f64, _weight_decay: f64, _lr: f64) -> f64 {
        1.0
    }

    /// The second pass of a rule whose first leaves a direction in its last slot and the parameters as they are: it gets the directions in
    /// place of gradients, and the norms by which rates adapt are theirs. Its kernel reads the same numbers.
    fn second(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// 1 or 0, as kernels read a flag.
pub(super) fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// f32 or f64.
pub trait Real:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// Rounds to this type.
    fn of(x: f64) -> Self;

    /// `self * a + b`; in f32 rounded once, so that all instruction sets give the same bits.
    fn mul_add(self, a: Self, b: Self) -> Self;

    /// Square root.
    fn sqrt(self) -> Self;

    /// The larger of both.
    fn max(self, other: Self) -> Self;

    /// 1 or -1; 0 of 0.
    fn sign(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn of(x: f64) -> Self {
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
    fn of(x: f64) -> Self {
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
