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
