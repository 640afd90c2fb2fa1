//! Products of rows with one factor for each channel, and the sums that are the factors' gradients.

use base::simd;

use super::lanes::{LANES, Lanes, group};

simd! {
    /// y = x times each lane's factor.
    pub(super) fn scale_row(x: &[f32], factors: &Lanes, y: &mut [f32]) {
        let n = y.len();
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES).map(group) {
            let (x, y) = (&x[at..at + LANES], &mut y[at..at + LANES]);
            for lane in 0..LANES {
                y[lane] = x[lane] * factors[lane];
            }
        }
        y[whole..].iter_mut().zip(&x[whole..n]).zip(factors).for_each(|((y, x), factor)| *y = x * factor);
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
