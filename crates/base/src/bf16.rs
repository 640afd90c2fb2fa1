//! bf16 numbers (the upper 16 bits of an f32): rounding, widening, element-wise sums. No `unsafe` code.

use crate::simd;

/// Rounds to the nearest bf16, ties to even. NaN stays NaN.
#[inline(always)]
pub fn round(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // Rounding could carry from a NaN's payload into the exponent, so NaN is handled separately. All steps use 32 bits,
    // so vectors are narrowed only at the end.
    let rounded = if x.is_nan() { bits | 0x0040_0000 } else { nearest };
    (rounded >> 16) as u16
}

#[inline(always)]
pub fn widen(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

simd! {
    /// `into += from`. Each sum is computed in f32 and then rounded.
    pub fn add(into: &mut [u16], from: &[u16]) {
        for (a, b) in into.iter_mut().zip(from) {
            *a = round(widen(*a) + widen(*b));
        }
    }
}

simd! {
    /// Rounds all elements of `from`.
    pub fn narrow_all(from: &[f32], into: &mut [u16]) {
        for (to, x) in into.iter_mut().zip(from) {
            *to = round(*x);
        }
    }
}

simd! {
    /// Widens all elements of `from`.
    pub fn widen_all(from: &[u16], into: &mut [f32]) {
        for (to, x) in into.iter_mut().zip(from) {
            *to = widen(*x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_and_ties_to_even() {
        let up = f32::from_bits(0x3f80_8001);
        let (tie_even, tie_odd) = (f32::from_bits(0x3f80_8000), f32::from_bits(0x3f81_8000));
        assert_eq!([up, tie_even, tie_odd].map(round), [0x3f81, 0x3f80, 0x3f82]);
        assert_eq!([0.0, -0.0, f32::INFINITY, f32::MAX].map(round), [0, 0x8000, 0x7f80, 0x7f80]);
        assert!(widen(round(f32::from_bits(0x7f80_0001))).is_nan() && widen(round(-f32::NAN)).is_nan());
        let tiny = f32::from_bits(0x0001_0000);
        assert_eq!(widen(round(tiny)), tiny);
    }

    #[test]
    fn sums_are_rounded_once() {
        let mut sum = vec![round(256.0), round(1.0)];
        add(&mut sum, &[round(1.0), round(-1.0)]);
        // 257 is halfway between 256 and 258, and 256 is the even one.
        assert_eq!(sum.iter().map(|s| widen(*s)).collect::<Vec<_>>(), [256.0, 0.0]);
    }
}
