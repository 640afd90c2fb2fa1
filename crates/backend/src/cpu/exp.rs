//! The exponential in f32, by operations that the compiler turns into those of vectors.

use std::f32::consts::LOG2_E;

/// Adding it to a number of less than 2^22 leaves that number, rounded to an integer, in the lowest bits.
const ROUNDER: f32 = 12_582_912.0;

/// ln 2 in two parts; the first has so few bits that its products with small integers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// e^x within 2 units of the last place between -87 and 88; from 88.4 on infinite, below -87.7 zero, NaN for NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // at these bounds n is 128, whose power of two is infinite, and -127, for which it is 0
    let x = x.clamp(-88.0, 88.7);
    // x = n ln 2 + r, |r| <= ln 2 / 2
    let rounded = x.mul_add(LOG2_E, ROUNDER);
    let n = rounded - ROUNDER;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    // Taylor's series: what is left out is below 6e-9
    let series = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let sum = series[1..].iter().fold(series[0], |sum: f32, c| sum.mul_add(r, *c));
    let power = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    sum * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
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
}
