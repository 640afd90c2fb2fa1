//! The numbers in which an update rule is computed: f32 on the CPU, f64 in the reference.

use std::ops::{Add, Div, Mul, Neg, Sub};

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
