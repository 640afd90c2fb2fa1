//! Rows of one channel block, (plane, block), cut into groups of [`LANES`] elements: lane i holds channel i % block. Also products of rows
//! with one factor per channel, and the gradients of these factors.

use base::simd;

/// Elements that the inner loops take at once; every block size divides it.
pub(super) const LANES: usize = 32;

/// One value for each lane.
pub(super) type Lanes = [f32; LANES];

/// The values of a block's channels, one for each lane; channels beyond the end have zero.
pub(super) fn lanes(values: &[f32], first: usize, block: usize) -> Lanes {
    std::array::from_fn(|lane| values.get(first + lane % block).copied().unwrap_or(0.0))
}

/// Adds each lane's sum to its channel's.
pub(super) fn add_lanes(sums: &Lanes, block: usize, to: &mut [f64]) {
    for (lane, sum) in sums.iter().enumerate() {
        to[lane % block] += f64::from(*sum);
    }
}

/// Groups after which the lanes of a row hold the same channels again: one in blocks that divide [`LANES`].
pub(super) fn period(block: usize) -> usize {
    let mut rest = (LANES, block);
    while rest.1 != 0 {
        rest = (rest.1, rest.0 % rest.1);
    }
    block / rest.0
}

/// Calls `f(first channel, channels)` for stretches of a block's channels for which there are kernels: the whole block where it is a
/// register or a single channel, else 16, then 8 at a time, then one by one.
pub(super) fn each_stretch(block: usize, mut f: impl FnMut(usize, usize)) {
    let mut first = 0;
    for width in [16, 8, 1] {
        while block - first >= width {
            f(first, width);
            first += width;
        }
    }
}

/// Where a group begins, told to the compiler as if by chance: where it sees that groups follow at equal steps, it takes one lane of
/// many groups at a time, with shuffles around each, at half the speed.
#[inline(always)]
pub(super) fn group(at: usize) -> usize {
    std::hint::black_box(at)
}

/// Calls a kernel with the block size as a constant.
macro_rules! by_block {
    ($block:expr, $f:ident($($arg:expr),*)) => {
        match $block {
            1 => $f::<1>($($arg),*),
            8 => $f::<8>($($arg),*),
            _ => $f::<16>($($arg),*),
        }
    };
}
pub(super) use by_block;

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
