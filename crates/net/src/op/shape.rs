//! The logical size of one sample's tensor, and how windows of convolutions and pools fit into a plane.

use std::fmt;

/// Channels, height, width of one sample; a vector of F features is (F, 1, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Channels, or features.
    pub c: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Shape {
    /// An image of `c` channels, `h` rows, `w` columns.
    pub const fn image(c: usize, h: usize, w: usize) -> Self {
        Self { c, h, w }
    }

    /// A vector of `f` features.
    pub const fn vector(f: usize) -> Self {
        Self { c: f, h: 1, w: 1 }
    }

    /// Elements of one sample.
    pub const fn elems(&self) -> usize {
        self.c * self.h * self.w
    }

    /// The one shape of all inputs.
    pub(super) fn alike(x: &[Self]) -> Result<Self, String> {
        match x.iter().find(|other| **other != x[0]) {
            Some(other) => Err(format!("both inputs must have one shape, got {} and {other}", x[0])),
            None => Ok(x[0]),
        }
    }

    /// Channels, height and width, a plane of one position too: where a window does not fit, that is the matter.
    pub(super) fn with_plane(&self) -> String {
        format!("{}x{}x{}", self.c, self.h, self.w)
    }

    /// Positions of one channel.
    pub const fn plane(&self) -> usize {
        self.h * self.w
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.h == 1 && self.w == 1 { write!(f, "{}", self.c) } else { write!(f, "{}x{}x{}", self.c, self.h, self.w) }
    }
}

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
