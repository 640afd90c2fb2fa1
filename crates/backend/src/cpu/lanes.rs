//! Loops over rows. A row is the plane of a channel block, (plane, block). The loops process groups of [`LANES`]
//! elements, and lane i of a group belongs to channel i % block. The module also multiplies rows by a factor per
//! channel and computes the gradients of these products.

use base::simd;

/// Elements that the inner loops process at a time. All blocks of 1, 8 or 16 channels divide it.
pub(super) const LANES: usize = 32;

pub(super) type Lanes = [f32; LANES];

/// Returns the value of each lane's channel. `first` is the first channel of the block. Channels beyond the end have 0.
pub(super) fn lanes(values: &[f32], first: usize, block: usize) -> Lanes {
    std::array::from_fn(|lane| values.get(first + lane % block).copied().unwrap_or(0.0))
}

/// Adds the sum of each lane to the sum of its channel.
pub(super) fn add_lanes(sums: &Lanes, block: usize, to: &mut [f64]) {
    for (lane, sum) in sums.iter().enumerate() {
        to[lane % block] += f64::from(*sum);
    }
}

/// Returns the number of groups after which the lanes belong to the same channels again. It is 1 if the block divides
/// [`LANES`].
pub(super) fn period(block: usize) -> usize {
    block / gcd(LANES, block)
}

/// Returns the greatest common divisor.
pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Splits a block's channels into stretches for which there are kernels, and calls `f(first channel, channels)` for
/// each. Stretches have 16 channels, then 8, then single ones.
pub(super) fn each_stretch(block: usize, mut f: impl FnMut(usize, usize)) {
    let mut first = 0;
    for width in [16, 8, 1] {
        while block - first >= width {
            f(first, width);
            first += width;
        }
    }
}

/// Returns `at`, the index of the first element of a group, unchanged, but hides from the compiler how it was computed.
/// If the compiler knew that groups have equal distances, it would use shuffles to combine the same lane from different
/// groups, which is half as fast.
#[inline(always)]
pub(super) fn hide_stride(at: usize) -> usize {
    std::hint::black_box(at)
}

/// Calls a kernel that has the block size as a constant parameter.
macro_rules! by_block {
    ($block:expr, $f:ident $(. $method:ident)? ($($arg:expr),*)) => {
        match $block {
            1 => $f $(. $method)? ::<1>($($arg),*),
            8 => $f $(. $method)? ::<8>($($arg),*),
            _ => $f $(. $method)? ::<16>($($arg),*),
        }
    };
}
pub(super) use by_block;

simd! {
    /// y = x times the factor of each lane.
    pub(super) fn scale_row(x: &[f32], factors: &Lanes, y: &mut [f32]) {
        let n = y.len();
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES).map(hide_stride) {
            let (x, y) = (&x[at..at + LANES], &mut y[at..at + LANES]);
            for lane in 0..LANES {
                y[lane] = x[lane] * factors[lane];
            }
        }
        y[whole..].iter_mut().zip(&x[whole..n]).zip(factors).for_each(|((y, x), factor)| *y = x * factor);
    }
}

simd! {
    /// Multiplies dy by the factor of each lane to get dx, and adds dy x to the sum of each lane.
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
