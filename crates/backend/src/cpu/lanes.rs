//! Rows of one channel block, (plane, block), cut into groups of [`LANES`] elements: lane i holds channel i % block.

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
