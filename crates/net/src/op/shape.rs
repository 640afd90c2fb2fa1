//! The logical size of one sample's tensor, how windows of convolutions and pools fit into a plane, and how large a layer may be.

use std::fmt;

use super::list::Op;

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

// Limits on layers out of a file, so that no later sum over the network overflows.

/// Values of one sample's tensor.
const MOST_VALUES: u128 = 1 << 28;

/// Elements of one parameter.
const MOST_ELEMENTS: u128 = 1 << 36;

/// Multiply-adds of one layer and sample.
const MOST_MACS: u128 = 1 << 50;

impl Op {
    /// [`Op::output`] of a layer that a file describes: refuses sizes that no network has, too.
    pub fn output_within_limits(&self, x: &[Shape]) -> Result<Shape, String> {
        let y = self.output(x)?;
        let product = |sizes: &[usize]| sizes.iter().fold(1u128, |product, &n| product.saturating_mul(n as u128));
        let values = product(&[y.c, y.h, y.w]);
        if values == 0 || values > MOST_VALUES {
            return Err(format!("makes {values} values of one image; from 1 to {MOST_VALUES} are possible"));
        }
        let plane = product(&[y.h, y.w]);
        for parameter in self.params(x[0]) {
            let elements = product(&parameter.shape);
            if elements == 0 || elements > MOST_ELEMENTS || elements.saturating_mul(plane) > MOST_MACS {
                let (field, shape) = (parameter.field, &parameter.shape);
                return Err(format!("its {field} would have the shape {shape:?}, which is too large"));
            }
        }
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conv, Linear};

    #[test]
    fn sizes_that_no_network_has_are_refused() {
        let x = Shape::image(64, 32, 32);
        let output =
            |op: &Op, x| op.output_within_limits(&[x]).map_err(|why| why.contains("large") || why.contains("values"));
        assert_eq!(output(&Conv::new(8, 3).into(), x), Ok(Shape::image(8, 30, 30)));
        assert_eq!(output(&Conv::new(1 << 24, 3).into(), x), Err(true));
        assert_eq!(output(&Linear::new(1 << 24).into(), Shape::image(1 << 14, 64, 64)), Err(true));
        assert_eq!(output(&Linear::new(0).into(), x), Err(true));
    }
}
