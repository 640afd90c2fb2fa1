//! Pixels fetched from where a grid says, as PyTorch's `grid_sample` does: the nearest one, or between four.

use super::arithmetic::{floor, fused, nearest};
use super::grid::Grid;
use super::image::{ByteImage, Rows};
use super::matrix::Affine;
use crate::transform::moves::PlanarShape;

/// How a pixel is made of those about its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transform) enum Sampling {
    /// The nearest one, at half the even one.
    Nearest,
    /// Between the four about it.
    Bilinear(Edge),
}

/// What is bilinear at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transform) enum Edge {
    /// Pixels outside are zero: torchvision's fill of `None`.
    Plain,
    /// The same, multiplied once more by the share of the pixel that lies inside: torchvision's fill of 0.
    Shaded,
}

impl Sampling {
    /// By its name, at whatever edge.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear(_) => "bilinear",
        }
    }

    /// A choice by name.
    pub const fn named(self) -> (&'static str, Self) {
        (self.name(), self)
    }
}

/// Fetches every pixel from its place; what comes from outside is zero.
pub(in crate::transform) fn warp(image: &mut ByteImage, grid: &Grid, sampling: Sampling) {
    let shape = image.shape();
    image.remake(|source, target, lines| {
        let rows = lines.rows(2 * shape.width, shape.width);
        match sampling {
            Sampling::Nearest => warp_nearest(source, target, shape, grid, rows),
            Sampling::Bilinear(edge) => warp_bilinear(source, target, shape, grid, edge, rows),
        }
    });
}

fn warp_nearest(source: &[u8], target: &mut [u8], shape: PlanarShape, grid: &Grid, rows: Rows<'_>) {
    let PlanarShape { height, width, .. } = shape;
    let Rows { floats, places, inside } = rows;
    let (xs, ys) = floats.split_at_mut(width);
    for row in 0..height {
        grid.row(row, xs, ys);
        for (((place, inside), &x), &y) in places.iter_mut().zip(&mut *inside).zip(&*xs).zip(&*ys) {
            let (x, y) = (to_integer(x, width as f32), to_integer(y, height as f32));
            let within = (x as u32) < width as u32 && (y as u32) < height as u32;
            let mask = u32::from(within).wrapping_neg();
            *place = (y as u32).wrapping_mul(width as u32).wrapping_add(x as u32) & mask;
            *inside = mask as u8;
        }
        for (source, target) in source.chunks_exact(shape.plane()).zip(target.chunks_exact_mut(shape.plane())) {
            for ((out, &place), &mask) in target[row * width..][..width].iter_mut().zip(&*places).zip(&*inside) {
                *out = source[place as usize] & mask;
            }
        }
    }
}

/// The nearest integer from -2 to `length` + 1, halves to the even one; no number becomes -2.
#[inline]
fn to_integer(value: f32, length: f32) -> i32 {
    const WHOLE: f32 = 1.5 * (1 << 23) as f32;
    // the lowest bits of such a float are an integer
    (value.max(-2.0).min(length + 1.0) + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

/// The four pixels about a place: where they are, and what they weigh; 0 outside.
struct Four {
    places: [usize; 4],
    weights: [f32; 4],
}

impl Four {
    fn about(x: f32, y: f32, shape: PlanarShape) -> Self {
        let (width, height) = (shape.width as f32, shape.height as f32);
        // places further out, and no number, are as good as these
        let (x, y) = (x.max(-2.0).min(width + 1.0), y.max(-2.0).min(height + 1.0));
        let (left, top) = (floor(x), floor(y));
        let (right_share, lower_share) = (x - left, y - top);
        let (left_share, upper_share) = (1.0 - right_share, 1.0 - lower_share);
        let columns = [(left, left_share), (left + 1.0, right_share)];
        let rows = [(top, upper_share), (top + 1.0, lower_share)];
        let mut four = Self { places: [0; 4], weights: [0.0; 4] };
        for (i, (row, share)) in rows.into_iter().enumerate() {
            for (j, (column, part)) in columns.into_iter().enumerate() {
                if (0.0..height).contains(&row) && (0.0..width).contains(&column) {
                    four.places[2 * i + j] = row as usize * shape.width + column as usize;
                    four.weights[2 * i + j] = share * part;
                }
            }
        }
        four
    }

    fn of(&self, plane: &[u8]) -> f32 {
        let terms = self.places.iter().zip(self.weights);
        terms.fold(0.0, |sum, (&place, weight)| fused(f32::from(plane[place]), weight, sum))
    }
}

fn warp_bilinear(source: &[u8], target: &mut [u8], shape: PlanarShape, grid: &Grid, edge: Edge, rows: Rows<'_>) {
    let (xs, ys) = rows.floats.split_at_mut(shape.width);
    for row in 0..shape.height {
        grid.row(row, xs, ys);
        for (column, (&x, &y)) in xs.iter().zip(&*ys).enumerate() {
            let four = Four::about(x, y, shape);
            let share = match edge {
                Edge::Plain => 1.0,
                Edge::Shaded => four.weights.iter().sum(),
            };
            let planes = source.chunks_exact(shape.plane()).zip(target.chunks_exact_mut(shape.plane()));
            for (source, target) in planes {
                target[row * shape.width + column] = nearest(four.of(source) * share);
            }
        }
    }
}

/// Maps the image.
pub(in crate::transform) fn affine(image: &mut ByteImage, map: &Affine, sampling: Sampling) {
    warp(image, &Grid::affine(map.inverse(), image.shape()), sampling);
}

/// Turns the image about its middle by `degrees`, against the clock.
pub(in crate::transform) fn rotate(image: &mut ByteImage, degrees: f64, sampling: Sampling) {
    // torchvision takes the angle from 0 to 360
    let angle = degrees.rem_euclid(360.0);
    if angle != 0.0 {
        affine(image, &Affine { angle: -angle, ..Affine::IDENTITY }, sampling);
    }
}
