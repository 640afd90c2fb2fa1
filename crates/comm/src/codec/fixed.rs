//! Sums of f64 values that do not depend on the order of the additions, for the few numbers of a step such as losses.
//! Each element has its own scale, shared by all workers, and is sent as a 64-bit integer.

use base::simd;

use super::packed::head_room;
use crate::error::Error;
use crate::world::World;

/// The f64 exponent field of infinity and NaN.
const NOT_FINITE: u32 = 0x7ff;

/// The largest k in [`scale`]. 2^-k must be a normal number.
const MOST: i32 = 1000;

/// Sums vectors element by element over all workers of all ranks. Collective. `summands` is an upper bound on the total
/// number of vectors. It determines the scale, so it must not depend on the number of ranks. Elements with infinity or
/// NaN become NaN.
pub fn sum(world: &World, shares: &[Vec<f64>], summands: usize) -> Result<Vec<f64>, Error> {
    let mut exponents = largest(shares);
    world.max_u32(&mut exponents)?;
    let mut codes = encode(shares, &exponents, summands);
    world.sum_i64(&mut codes)?;
    Ok(decode(&codes, &exponents, summands))
}

/// For each element, returns the largest f64 exponent field in all shares.
fn largest(shares: &[Vec<f64>]) -> Vec<u32> {
    let mut most = vec![0; shares.first().map_or(0, Vec::len)];
    for share in shares {
        most.iter_mut().zip(share).for_each(|(m, x)| *m = (*m).max((x.to_bits() >> 52) as u32 & NOT_FINITE));
    }
    most
}

/// Returns 2^k and 2^-k. `field` is the largest f64 exponent field, so all summands are below 2^(field - 1022) in
/// magnitude. If each of `summands` numbers is multiplied by 2^k, the magnitude of their sum is at most 2^62.
#[inline(always)]
fn scale(field: u32, summands: usize) -> (f64, f64) {
    let k = (62 - head_room(summands) as i32 - (field as i32 - 1022)).min(MOST);
    let power = |k: i32| f64::from_bits(((k + 1023) as u64) << 52);
    (power(k), power(-k))
}

fn encode(shares: &[Vec<f64>], exponents: &[u32], summands: usize) -> Vec<i64> {
    let mut codes = vec![0i64; exponents.len()];
    shares.iter().for_each(|share| add(&mut codes, share, exponents, summands));
    codes
}

simd! {
    fn add(codes: &mut [i64], share: &[f64], exponents: &[u32], summands: usize) {
        for ((code, x), field) in codes.iter_mut().zip(share).zip(exponents) {
            if *field != NOT_FINITE {
                *code += (x * scale(*field, summands).0).round_ties_even() as i64;
            }
        }
    }
}

fn decode(codes: &[i64], exponents: &[u32], summands: usize) -> Vec<f64> {
    let value = |(code, field): (&i64, &u32)| match *field {
        NOT_FINITE => f64::NAN,
        field => *code as f64 * scale(field, summands).1,
    };
    codes.iter().zip(exponents).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums all vectors in `parts`, where each part simulates one rank.
    fn sum_in(parts: &[&[Vec<f64>]]) -> Vec<f64> {
        let summands = 8;
        let mut exponents = vec![0; parts[0][0].len()];
        for part in parts {
            exponents.iter_mut().zip(largest(part)).for_each(|(m, x)| *m = (*m).max(x));
        }
        let mut codes = vec![0; exponents.len()];
        for part in parts {
            codes.iter_mut().zip(encode(part, &exponents, summands)).for_each(|(c, x)| *c += x);
        }
        decode(&codes, &exponents, summands)
    }

    #[test]
    fn fixed_point_sums_do_not_depend_on_the_order() {
        let shares: Vec<Vec<f64>> =
            [0.1, 1e-7, -3.7, 2e5, 1.0 / 3.0].iter().map(|x| vec![*x, -x * 1e-200, 0.0]).collect();
        let whole = sum_in(&[&shares]);
        assert_eq!(whole, sum_in(&[&shares[..2], &shares[2..]]));
        let turned: Vec<_> = shares.iter().rev().cloned().collect();
        assert_eq!(whole, sum_in(&[&turned[..1], &turned[1..]]));
        let plain: f64 = shares.iter().map(|s| s[0]).sum();
        assert!((whole[0] - plain).abs() <= plain.abs() * 1e-15, "{} and {plain}", whole[0]);
        assert!((whole[1] / whole[0] + 1e-200).abs() < 1e-214 && whole[2] == 0.0, "{whole:?}");
    }

    #[test]
    fn fixed_point_sums_keep_integers_nan_and_extremes() {
        let shares = vec![vec![4_294_967_295.0, f64::NAN, f64::MAX, 5e-324], vec![1.0, 2.0, f64::MIN, 0.0]];
        let whole = sum_in(&[&shares]);
        assert_eq!((whole[0], whole[2]), (4_294_967_296.0, 0.0));
        assert!(whole[1].is_nan() && whole[3] == 0.0);
        assert!(sum_in(&[&[vec![1.0]], &[vec![f64::INFINITY]]])[0].is_nan());
    }
}
