//! Places of running statistics.

/// Where a batch normalisation's running statistics lie.
#[derive(Clone, Copy, Debug)]
pub struct NormPlace {
    /// Its node.
    pub node: usize,
    /// Its number of channels C.
    pub channels: usize,
    /// First of 2 C values: means, then variances.
    pub offset: usize,
}
