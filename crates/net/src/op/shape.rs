//! A sample's logical shape, and how windows of convolutions and pools fit into a plane.

use std::fmt;

/// Channels, height and width of a sample. A vector of F features is (F, 1, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Channels of an image, or features of a vector.
    pub c: usize,
    pub h: usize,
    pub w: usize,
}

impl Shape {
    /// Returns the shape of an image with `c` channels, `h` rows and `w` columns.
    pub const fn image(c: usize, h: usize, w: usize) -> Self {
        Self { c, h, w }
    }

    /// Returns the shape of a vector with `f` features.
    pub const fn vector(f: usize) -> Self {
        Self { c: f, h: 1, w: 1 }
    }

    /// Returns the number of elements of a sample.
    pub const fn elems(&self) -> usize {
        self.c * self.h * self.w
    }

    /// Returns the common shape of all inputs, or an error if they differ.
    pub(super) fn alike(x: &[Self]) -> Result<Self, String> {
        match x.iter().find(|other| **other != x[0]) {
            Some(other) => Err(format!("both inputs must have the same shape, got {} and {other}", x[0])),
            None => Ok(x[0]),
        }
    }

    /// Formats channels, height and width, even if the plane has only one position. Used in messages about windows that
    /// do not fit.
    pub(super) fn with_plane(&self) -> String {
        format!("{}x{}x{}", self.c, self.h, self.w)
    }

    /// Returns the number of positions in a channel, height times width.
    pub const fn plane(&self) -> usize {
        self.h * self.w
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.h == 1 && self.w == 1 { write!(f, "{}", self.c) } else { write!(f, "{}x{}x{}", self.c, self.h, self.w) }
    }
}

/// Returns how often a window of size `k` fits into `extent` with stride `s`, or `None` if it does not fit.
pub(super) fn window_steps(extent: usize, k: usize, s: usize) -> Option<usize> {
    (k > 0 && s > 0 && extent >= k).then(|| (extent - k) / s + 1)
}

/// Returns TensorFlow's SAME padding at top, left, bottom and right, see [`same_pads`].
pub fn same_padding(x: Shape, kernel: [usize; 2], stride: [usize; 2]) -> [usize; 4] {
    let (top, bottom) = same_pads(x.h, kernel[0], stride[0]);
    let (left, right) = same_pads(x.w, kernel[1], stride[1]);
    [top, left, bottom, right]
}

/// Returns a part of the message about a window that does not fit. Empty without padding.
pub(super) fn pads_text(pads: [usize; 4]) -> String {
    if pads == [0; 4] { String::new() } else { format!(" with pads {pads:?} (top, left, bottom, right)") }
}

/// Returns the padding before and after for `ceil(extent / stride)` outputs. If the total is odd, the extra zero goes
/// after (TensorFlow's SAME).
pub fn same_pads(extent: usize, kernel: usize, stride: usize) -> (usize, usize) {
    let out = extent.div_ceil(stride);
    let total = (out.saturating_sub(1) * stride + kernel).saturating_sub(extent);
    (total / 2, total - total / 2)
}
