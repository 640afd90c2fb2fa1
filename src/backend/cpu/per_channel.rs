//! Products of rows with one factor for each channel, and the sums that are the factors' gradients.

use super::lanes::{LANES, Lanes};
use crate::simd::simd;

simd! {
    /// y = x times each lane's factor.
    pub(super) fn scale_row(x: &[f32], factors: &Lanes, y: &mut [f32]) {
        let (groups, rest) = y.as_chunks_mut::<LANES>();
        let (from, left) = x[..groups.len() * LANES + rest.len()].as_chunks::<LANES>();
        for (y, x) in groups.iter_mut().zip(from) {
            for lane in 0..LANES {
                y[lane] = x[lane] * factors[lane];
            }
        }
        rest.iter_mut().zip(left).zip(factors).for_each(|((y, x), factor)| *y = x * factor);
    }
}

simd! {
    /// Turns dy into dx by each lane's factor, and adds dy x to each lane's sum.
    pub(super) fn scale_row_back(dy: &mut [f32], x: &[f32], factors: &Lanes, sums: &mut Lanes) {
        let (groups, rest) = dy.as_chunks_mut::<LANES>();
        let (from, left) = x[..groups.len() * LANES + rest.len()].as_chunks::<LANES>();
        for (dy, x) in groups.iter_mut().zip(from) {
            for lane in 0..LANES {
                sums[lane] = dy[lane].mul_add(x[lane], sums[lane]);
                dy[lane] *= factors[lane];
            }
        }
        for (lane, (dy, x)) in rest.iter_mut().zip(left).enumerate() {
            sums[lane] = dy.mul_add(*x, sums[lane]);
            *dy *= factors[lane];
        }
    }
}
