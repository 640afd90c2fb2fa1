//! Vector registers of eight floats (AVX2, or two registers of NEON) and of sixteen (AVX-512) with the same interface,
//! so that one source serves all. Also the exponential in f32.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::f32::consts::LOG2_E;

#[cfg(target_arch = "aarch64")]
pub use self::{Portable as Sixteen, Portable as SixteenBf16};
#[cfg(target_arch = "aarch64")]
pub use neon::{Neon as Eight, transpose};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2 as Eight, Avx512 as Sixteen, Avx512Bf16 as SixteenBf16, transpose};

/// An instruction set with fused multiply-add. A value of the type exists only if the processor supports the set, which
/// makes its operations safe to call.
///
/// An operation becomes a single instruction only in code that [`Self::run`] compiles for the set. So every function
/// that takes a set must be `#[inline(always)]`.
pub trait Vectors: Copy + Send + Sync {
    type Lanes: Copy;
    /// Floats per register, and channels per block.
    const LANES: usize;
    const REGISTERS: usize;
    /// Factors per lane: 1 for f32, 2 for bf16 pairs.
    const FACTORS: usize;
    /// Number of rows, with two registers of sums each, for which the registers suffice in addition to the factors.
    const ROWS: usize;

    #[inline(always)]
    fn zero(self) -> Self::Lanes {
        self.splat(0.0)
    }
    fn splat(self, value: f32) -> Self::Lanes;
    #[inline(always)]
    fn scale(self, factor: f32, a: Self::Lanes) -> Self::Lanes {
        self.mul(self.splat(factor), a)
    }
    fn add(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    fn sub(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    fn mul(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Returns a b + c, rounded once.
    fn mul_add(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;
    /// Returns c - a b, rounded once.
    fn sub_mul(self, c: Self::Lanes, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Returns c plus the products of the [factors](Self::FACTORS) in each lane.
    fn product(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;
    /// Returns the greater of each pair, or b if either is NaN.
    fn max(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Returns 0 in lanes where a <= least, otherwise b. So NaN in a selects b.
    fn unless_at_most(self, least: Self::Lanes, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Returns `a`, and makes the compiler compute it before it loads anything that the program reads later. Otherwise,
    /// the compiler loads so early that it runs out of registers and keeps sums in memory.
    fn in_order(self, a: Self::Lanes) -> Self::Lanes;

    /// # Safety
    /// `from` must point to [`Self::LANES`] floats.
    unsafe fn load(self, from: *const f32) -> Self::Lanes;
    /// # Safety
    /// `to` must point to memory for [`Self::LANES`] floats.
    unsafe fn store(self, lanes: Self::Lanes, to: *mut f32);

    /// Prefetches the cache line of an address. The address may be invalid.
    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        base::simd::prefetch(address.cast());
    }

    /// Runs a job in code that is compiled for this set.
    fn run<J: Job>(self, job: J) -> J::Output;
}

/// Loads the register at index `at` of a slice.
#[inline(always)]
pub fn load<S: Vectors>(set: S, from: &[f32], at: usize) -> S::Lanes {
    let from = &from[at..at + S::LANES];
    // SAFETY: the slice taken above has enough floats.
    unsafe { set.load(from.as_ptr()) }
}

/// Stores a register to the start of a slice.
#[inline(always)]
pub fn store<S: Vectors>(set: S, lanes: S::Lanes, to: &mut [f32]) {
    let to = &mut to[..S::LANES];
    // SAFETY: the slice taken above has enough floats.
    unsafe { set.store(lanes, to.as_mut_ptr()) }
}

/// R x C registers in a slice, at equal distances. The bounds are checked once, when it is created.
#[derive(Clone, Copy)]
pub struct Grid<'a, S, const R: usize, const C: usize> {
    set: S,
    from: &'a [f32],
    steps: [usize; 2],
}

/// A [`Grid`] whose registers can be written.
pub struct GridMut<'a, S, const R: usize, const C: usize> {
    set: S,
    to: &'a mut [f32],
    steps: [usize; 2],
}

/// Returns the index after the last register of a grid.
#[inline(always)]
fn extent<S: Vectors, const R: usize, const C: usize>([down, across]: [usize; 2]) -> usize {
    (R - 1).saturating_mul(down).saturating_add((C - 1).saturating_mul(across)).saturating_add(S::LANES)
}

impl<'a, S: Vectors, const R: usize, const C: usize> Grid<'a, S, R, C> {
    /// Creates a grid. `steps` are the distances between rows and between columns, in floats. Panics if the last
    /// register is not inside the slice.
    #[inline(always)]
    pub fn new(set: S, from: &'a [f32], steps: [usize; 2]) -> Self {
        Self { set, from: &from[..extent::<S, R, C>(steps)], steps }
    }

    #[inline(always)]
    pub fn get(self, r: usize, c: usize) -> S::Lanes {
        assert!(r < R && c < C);
        // SAFETY: the last register is inside the slice, and no register ends after it.
        unsafe { self.set.load(self.from.as_ptr().add(r * self.steps[0] + c * self.steps[1])) }
    }
}

impl<'a, S: Vectors, const R: usize, const C: usize> GridMut<'a, S, R, C> {
    /// Works like [`Grid::new`], for writing.
    #[inline(always)]
    pub fn new(set: S, to: &'a mut [f32], steps: [usize; 2]) -> Self {
        Self { set, to: &mut to[..extent::<S, R, C>(steps)], steps }
    }

    #[inline(always)]
    pub fn get(&self, r: usize, c: usize) -> S::Lanes {
        Grid::<S, R, C> { set: self.set, from: self.to, steps: self.steps }.get(r, c)
    }

    #[inline(always)]
    pub fn put(&mut self, r: usize, c: usize, lanes: S::Lanes) {
        assert!(r < R && c < C);
        // SAFETY: the last register is inside the slice, and no register ends after it.
        unsafe { self.set.store(lanes, self.to.as_mut_ptr().add(r * self.steps[0] + c * self.steps[1])) }
    }
}

/// Side of a square that `transpose` transposes: the lanes of [`Eight`].
pub const SIDE: usize = Eight::LANES;

/// Lanes of the longest register.
pub const MOST_LANES: usize = 16;

/// Work that is compiled for each instruction set.
pub trait Job {
    type Output;
    /// Does the work. Implementations must be `#[inline(always)]`, because only inlined code is compiled for the
    /// instruction set.
    fn run<S: Vectors>(self, set: S) -> Self::Output;
}

/// Eight floats without vector instructions, for processors that do not support any instruction set above.
#[derive(Clone, Copy)]
pub struct Portable;

#[cfg(target_arch = "aarch64")]
impl Portable {
    /// Returns `None`, because this program does not use vectors of sixteen floats on ARM. [`Sixteen`] and
    /// [`SixteenBf16`] are names of this type there.
    pub fn detect() -> Option<Self> {
        None
    }
}

impl Vectors for Portable {
    type Lanes = [f32; 8];
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const FACTORS: usize = 1;
    const ROWS: usize = 6;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Lanes {
        [value; 8]
    }
    #[inline(always)]
    fn add(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn sub_mul(self, c: Self::Lanes, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn product(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes {
        self.mul_add(a, b, c)
    }
    #[inline(always)]
    fn max(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn unless_at_most(self, least: Self::Lanes, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes {
        std::array::from_fn(|i| if a[i] <= least[i] { 0.0 } else { b[i] })
    }
    #[inline(always)]
    fn in_order(self, a: Self::Lanes) -> Self::Lanes {
        a
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::Lanes {
        // SAFETY: the caller ensures that the floats are there.
        unsafe { from.cast::<Self::Lanes>().read() }
    }
    #[inline(always)]
    unsafe fn store(self, lanes: Self::Lanes, to: *mut f32) {
        // SAFETY: the caller ensures that there is room.
        unsafe { to.cast::<Self::Lanes>().write(lanes) }
    }

    #[inline(always)]
    fn run<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

// The exponential in f32. The compiler vectorises all its operations.

/// Adding this to a number below 2^22 leaves the rounded integer in the lowest bits.
const ROUNDER: f32 = 12_582_912.0;

/// ln 2 in two parts. The first has so few bits that its products with small integers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Returns e^x. The error is at most 2 units in the last place between -87 and 88. The result is infinite from 88.4 on,
/// zero below -87.7, and NaN for NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // At 88.7, n is 128 and the computed power of two is infinite. At -88, n is -127 and the power is 0.
    let x = x.clamp(-88.0, 88.7);
    // x = n ln 2 + r, |r| <= ln 2 / 2
    let rounded = x.mul_add(LOG2_E, ROUNDER);
    let n = rounded - ROUNDER;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    // The remainder of this Taylor series is below 6e-9.
    let series = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let sum = series[1..].iter().fold(series[0], |sum: f32, c| sum.mul_add(r, *c));
    let power = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    sum * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_f64() {
        for i in -870_000..=880_000 {
            let x = i as f32 / 10_000.0;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}): off by {error:e}");
        }
        assert!(exp(f32::NAN).is_nan());
        for far in [88.4, 88.7, 89.0, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!((exp(far), exp(-far)), (f32::INFINITY, 0.0), "{far}");
        }
        assert!((-880..=-870).all(|x| (0.0..2e-38).contains(&exp(x as f32 / 10.0))));
    }

    /// Sets the lanes with 3 where a value is not at most 0.
    fn passed<S: Vectors>(set: S) -> Vec<f32> {
        let values = [f32::NAN, -1.0, 0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE];
        let values = [values, values].concat();
        let mut to = vec![-1.0; S::LANES];
        store(set, set.unless_at_most(set.zero(), load(set, &values, 0), set.splat(3.0)), &mut to);
        to
    }

    #[test]
    fn unless_at_most_zeroes_only_lanes_at_or_below_the_limit() {
        let Some(set) = Eight::detect() else { return crate::skip::skip("the processor has no AVX2") };
        let want = [3.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0, 3.0];
        assert_eq!(passed(set), want);
        let Some(set) = Sixteen::detect() else {
            return crate::skip::skip("with AVX-512: the processor does not have it");
        };
        assert_eq!(passed(set), [want, want].concat());
    }

    #[test]
    fn transpose_swaps_rows_and_columns() {
        let Some(set) = Eight::detect() else { return crate::skip::skip("the processor has no AVX2") };
        let (step, value) = (11, |row: usize, column: usize| (10 * row + column) as f32);
        let from: Vec<f32> = (0..SIDE * step).map(|i| value(i / step, i % step)).collect();
        let mut to = vec![-1.0; SIDE * step];
        transpose(set, &from, &mut to, step);
        for (i, to) in to.iter().enumerate() {
            let (row, column) = (i / step, i % step);
            assert_eq!(*to, if column < SIDE { value(column, row) } else { -1.0 });
        }
    }
}
