//! Blurred downsampling: attributes, and the cells and weights of each output.

use super::shape::{Shape, window_steps};
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// A binomial filter over each channel with a stride. Edges are mirrored without repeating the outermost cells (Zhang
/// 2019, arXiv 1904.11486, as timm's `BlurPool2d`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlurPool {
    /// Height and width of the filter. Size 3 has the weights 1, 2, 1.
    pub size: usize,
    pub stride: usize,
}

impl BlurPool {
    /// Returns the filter along one axis. Its sum is 1.
    pub fn weights(&self) -> Vec<f32> {
        let next = |row: Vec<f64>, _| (0..=row.len()).map(|i| half(&row, i.wrapping_sub(1)) + half(&row, i)).collect();
        (1..self.size).fold(vec![1.0], next).into_iter().map(|w: f64| w as f32).collect()
    }

    /// For each output along the rows (`axis` 0) or the columns (1), returns the cells that the filter covers.
    pub fn cells(&self, x: Shape, axis: usize) -> Result<Vec<Vec<usize>>, String> {
        let (size, pad) = ([x.h, x.w][axis], (self.stride + self.size).saturating_sub(2) / 2);
        let steps = window_steps(size + 2 * pad, self.size, self.stride);
        let Some(steps) = steps.filter(|_| pad < size) else {
            let x = x.with_plane();
            return Err(format!("a blur of {0} x {0} with stride {1} does not fit into {x}", self.size, self.stride));
        };
        let mirrored = |at: usize| match at.abs_diff(pad) {
            at if at >= size => 2 * (size - 1) - at,
            at => at,
        };
        Ok((0..steps).map(|i| (0..self.size).map(|tap| mirrored(i * self.stride + tap)).collect()).collect())
    }
}

/// The usual filter: 3 x 3 with stride 2.
impl Default for BlurPool {
    fn default() -> Self {
        Self { size: 3, stride: 2 }
    }
}

/// Returns half of an element, or zero outside the list.
fn half(row: &[f64], i: usize) -> f64 {
    row.get(i).map_or(0.0, |v| 0.5 * v)
}

impl OpSpec for BlurPool {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::image(x[0].c, self.cells(x[0], 0)?.len(), self.cells(x[0], 1)?.len()))
    }
}

/// Maximum size and stride of the filter.
const LARGEST: usize = 63;

impl OpFormat for BlurPool {
    const WORDS: &'static [&'static str] = &["blur_pool"];
    const CURE: &'static str = "try a smaller size";

    fn plain(_: &str) -> Self {
        Self::default()
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { size, stride } = self;
        keys.key("size", size);
        keys.key("stride", stride);
        keys.refuse("size", *size > LARGEST, &format!("must be at most {LARGEST}, got {size}"));
        keys.refuse("stride", *stride > LARGEST, &format!("must be at most {LARGEST}, got {stride}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_binomial_and_edges_are_mirrored() {
        let blur = |size| BlurPool { size, stride: 2 };
        assert_eq!(blur(3).weights(), [0.25, 0.5, 0.25]);
        assert_eq!(blur(5).weights(), [1.0, 4.0, 6.0, 4.0, 1.0].map(|w| w / 16.0));
        let x = Shape::image(1, 5, 4);
        assert_eq!(blur(3).cells(x, 0).unwrap(), [[1, 0, 1], [1, 2, 3], [3, 4, 3]]);
        assert_eq!(blur(3).cells(x, 1).unwrap(), [[1, 0, 1], [1, 2, 3]]);
        assert!(blur(5).cells(Shape::image(1, 2, 2), 0).is_err());
    }
}
