//! Where the pixels of a warped image come from, in the f32 arithmetic of torchvision's grids and of PyTorch's `grid_sample`.

use super::arithmetic::fused;
use crate::transform::moves::PlanarShape;

/// For each pixel of an image, its place in the source, for one shape of both.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Grid {
    /// Of x: factors of the column and of the row, and what is added.
    x: [f32; 3],
    y: [f32; 3],
    /// The divisor of both, of a perspective.
    divisor: Option<[f32; 3]>,
    shape: PlanarShape,
}

impl Grid {
    /// From the inverse of an affine map, in pixels from the middle of the image.
    pub fn affine(matrix: [f64; 6], shape: PlanarShape) -> Self {
        Self::new(matrix, None, shape)
    }

    /// From the coefficients of a perspective map, in pixels from the corner of the image.
    pub fn perspective(map: [f64; 8], shape: PlanarShape) -> Self {
        let [a, b, c, d, e, f, g, h] = map;
        Self::new([a, b, c, d, e, f], Some([g as f32, h as f32, 1.0]), shape)
    }

    fn new(map: [f64; 6], divisor: Option<[f32; 3]>, shape: PlanarShape) -> Self {
        let [a, b, c, d, e, f] = map.map(|number| number as f32);
        let (half_width, half_height) = (0.5 * shape.width as f32, 0.5 * shape.height as f32);
        let x = [a, b, c].map(|number| number / half_width);
        let y = [d, e, f].map(|number| number / half_height);
        Self { x, y, divisor, shape }
    }

    /// The places of row `row`: columns and rows of the source, not rounded.
    pub fn row(&self, row: usize, xs: &mut [f32], ys: &mut [f32]) {
        let Self { x, y, shape, .. } = *self;
        let (width, height) = (shape.width as f32, shape.height as f32);
        match self.divisor {
            None => {
                let (first, down) = (0.5 * (1.0 - width), row as f32 + 0.5 * (1.0 - height));
                fill(xs, first, |right| place(sum(x, right, down), width));
                fill(ys, first, |right| place(sum(y, right, down), height));
            }
            Some(divisor) => {
                let down = row as f32 + 0.5;
                let part = |of: [f32; 3], right: f32| sum(of, right, down) / sum(divisor, right, down) - 1.0;
                fill(xs, 0.5, |right| place(part(x, right), width));
                fill(ys, 0.5, |right| place(part(y, right), height));
            }
        }
    }
}

/// factors[0] * right + factors[1] * down + factors[2], as a product of matrices sums it.
#[inline]
fn sum(factors: [f32; 3], right: f32, down: f32) -> f32 {
    fused(factors[1], down, factors[0] * right) + factors[2]
}

/// From -1 to 1 over `length` pixels to pixels.
#[inline]
fn place(at: f32, length: f32) -> f32 {
    fused(at + 1.0, 0.5 * length, -0.5)
}

fn fill(line: &mut [f32], first: f32, of: impl Fn(f32) -> f32) {
    for (column, value) in line.iter_mut().enumerate() {
        *value = of(column as u32 as f32 + first);
    }
}
