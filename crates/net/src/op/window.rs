//! How windows of convolutions and pools fit into a plane.

/// How often a window of `k` fits at step `s` into `extent`, if at all.
pub(super) fn window_steps(extent: usize, k: usize, s: usize) -> Option<usize> {
    (k > 0 && s > 0 && extent >= k).then(|| (extent - k) / s + 1)
}

/// Zeros before and after that make `ceil(extent / stride)` outputs; the odd one goes after (TensorFlow's SAME).
pub fn same_pads(extent: usize, kernel: usize, stride: usize) -> (usize, usize) {
    let out = extent.div_ceil(stride);
    let total = (out.saturating_sub(1) * stride + kernel).saturating_sub(extent);
    (total / 2, total - total / 2)
}
