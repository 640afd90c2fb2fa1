//! Affine and perspective maps of images, in torchvision's f32 arithmetic.

use super::image::{Pixel, Planes, Rows};
use super::values::{floor, fused};
use crate::transform::geometry::PlanarShape;

/// How a pixel is computed from the pixels around its source position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transform) enum Sampling {
    /// Takes the nearest pixel. If two are equally near, the even one.
    Nearest,
    /// Interpolates between the four surrounding pixels.
    Bilinear(Edge),
}

/// How bilinear interpolation treats the image borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transform) enum Edge {
    /// Pixels outside are zero, like torchvision with a fill of `None`.
    Plain,
    /// Like `Plain`, but the result is also multiplied by the fraction of the weights that belongs to pixels inside the
    /// image, like torchvision with a fill of 0.
    Shaded,
}

impl Sampling {
    /// Returns the name in a recipe. It does not depend on the edge.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear(_) => "bilinear",
        }
    }

    /// Returns the name and the value, as an entry of a list of choices.
    pub const fn named(self) -> (&'static str, Self) {
        (self.name(), self)
    }
}

/// Takes every pixel from its source position in `grid`. Pixels from outside the image are zero.
pub(in crate::transform) fn warp<T: Pixel>(image: &mut Planes<T>, grid: &Grid, sampling: Sampling) {
    let shape = image.shape();
    image.replace_with(|source, target, lines| {
        let rows = lines.rows(2 * shape.width, shape.width);
        match sampling {
            Sampling::Nearest => warp_nearest(source, target, shape, grid, rows),
            Sampling::Bilinear(edge) => warp_bilinear(source, target, shape, grid, edge, rows),
        }
    });
}

fn warp_nearest<T: Pixel>(source: &[T], target: &mut [T], shape: PlanarShape, grid: &Grid, rows: Rows<'_>) {
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
                *out = source[place as usize].masked(mask);
            }
        }
    }
}

/// Rounds to the nearest integer with ties to even, and clamps to -2 to `length` + 1. NaN becomes -2.
#[inline]
fn to_integer(value: f32, length: f32) -> i32 {
    const WHOLE: f32 = 1.5 * (1 << 23) as f32;
    // After adding `WHOLE`, the lowest bits of the float are the rounded integer.
    (value.max(-2.0).min(length + 1.0) + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

/// Positions and weights of the four pixels around a point. The weight of a pixel outside the image is 0.
struct FourPixels {
    places: [usize; 4],
    weights: [f32; 4],
}

impl FourPixels {
    fn around(x: f32, y: f32, shape: PlanarShape) -> Self {
        let (width, height) = (shape.width as f32, shape.height as f32);
        // All points beyond these limits give the same result. NaN becomes -2.
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

    fn interpolate<T: Pixel>(&self, plane: &[T]) -> f32 {
        let terms = self.places.iter().zip(self.weights);
        terms.fold(0.0, |sum, (&place, weight)| fused(plane[place].value(), weight, sum))
    }
}

fn warp_bilinear<T: Pixel>(
    source: &[T],
    target: &mut [T],
    shape: PlanarShape,
    grid: &Grid,
    edge: Edge,
    rows: Rows<'_>,
) {
    let (xs, ys) = rows.floats.split_at_mut(shape.width);
    for row in 0..shape.height {
        grid.row(row, xs, ys);
        for (column, (&x, &y)) in xs.iter().zip(&*ys).enumerate() {
            let four = FourPixels::around(x, y, shape);
            let share = match edge {
                Edge::Plain => 1.0,
                Edge::Shaded => four.weights.iter().sum(),
            };
            let planes = source.chunks_exact(shape.plane()).zip(target.chunks_exact_mut(shape.plane()));
            for (source, target) in planes {
                target[row * shape.width + column] = T::nearest(four.interpolate(source) * share);
            }
        }
    }
}

/// Returns the grid that rotates an image counterclockwise about its centre by `degrees`, or `None` if this is a
/// multiple of 360.
pub(in crate::transform) fn rotation(degrees: f64, shape: PlanarShape) -> Option<Grid> {
    // torchvision reduces the angle to 0 to 360.
    let angle = degrees.rem_euclid(360.0);
    (angle != 0.0).then(|| Affine { angle: -angle, ..Affine::IDENTITY }.grid(shape))
}

/// The source position of each pixel, for images of the same shape.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Grid {
    /// Coefficients of the source x: factors of column and row, and a constant.
    x: [f32; 3],
    y: [f32; 3],
    /// Coefficients of the common divisor of x and y. `None` for affine maps.
    divisor: Option<[f32; 3]>,
    shape: PlanarShape,
}

impl Grid {
    /// Creates a grid from the coefficients of a perspective map. Its unit is pixels, measured from the corner of the
    /// image.
    pub fn perspective(map: [f64; 8], shape: PlanarShape) -> Self {
        let [a, b, c, d, e, f, g, h] = map;
        Self::new([a, b, c, d, e, f], Some([g as f32, h as f32, 1.0]), shape)
    }

    /// Creates a grid from the matrix of an inverse map. Without a divisor, its unit is pixels, measured from the centre
    /// of the image.
    fn new(map: [f64; 6], divisor: Option<[f32; 3]>, shape: PlanarShape) -> Self {
        let [a, b, c, d, e, f] = map.map(|number| number as f32);
        let (half_width, half_height) = (0.5 * shape.width as f32, 0.5 * shape.height as f32);
        let x = [a, b, c].map(|number| number / half_width);
        let y = [d, e, f].map(|number| number / half_height);
        Self { x, y, divisor, shape }
    }

    /// Computes the source columns and rows of the pixels in row `row`, without rounding.
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

/// Computes `factors[0] * right + factors[1] * down + factors[2]`, with the same roundings as a matrix product.
#[inline]
fn sum(factors: [f32; 3], right: f32, down: f32) -> f32 {
    fused(factors[1], down, factors[0] * right) + factors[2]
}

/// Converts a coordinate from the range -1 to 1 to pixels of a side with `length` pixels.
#[inline]
fn place(at: f32, length: f32) -> f32 {
    fused(at + 1.0, 0.5 * length, -0.5)
}

fn fill(line: &mut [f32], first: f32, of: impl Fn(f32) -> f32) {
    for (column, value) in line.iter_mut().enumerate() {
        *value = of(column as u32 as f32 + first);
    }
}

/// An affine map of an image. x points right and y down, both measured from the centre of the image.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Affine {
    /// Rotation angle in degrees, clockwise.
    pub angle: f64,
    /// Number of columns and rows that the image is moved.
    pub translate: (f64, f64),
    pub scale: f64,
    /// Angles of the shear in x and y, in degrees.
    pub shear: (f64, f64),
    /// The point that stays in place, apart from `translate`.
    pub centre: (f64, f64),
}

impl Affine {
    pub const IDENTITY: Self =
        Self { angle: 0.0, translate: (0.0, 0.0), scale: 1.0, shear: (0.0, 0.0), centre: (0.0, 0.0) };

    /// Returns the source positions for images of this shape.
    pub fn grid(&self, shape: PlanarShape) -> Grid {
        Grid::new(self.inverse(), None, shape)
    }

    /// Returns the map from target pixels to source positions: x' = m0 x + m1 y + m2, y' = m3 x + m4 y + m5.
    pub fn inverse(&self) -> [f64; 6] {
        let (angle, shear_x, shear_y) = (self.angle.to_radians(), self.shear.0.to_radians(), self.shear.1.to_radians());
        let ((cx, cy), (tx, ty)) = (self.centre, self.translate);
        let turned = angle - shear_y;
        // The map without its scale is (a, b; c, d), and has determinant 1.
        let a = turned.cos() / shear_y.cos();
        let b = -(a * shear_x.tan() + angle.sin());
        let c = turned.sin() / shear_y.cos();
        let d = angle.cos() - c * shear_x.tan();
        let [m0, m1, m3, m4] = [d, -b, -c, a].map(|x| x / self.scale);
        let m2 = cx - m0 * (cx + tx) - m1 * (cy + ty);
        let m5 = cy - m3 * (cx + tx) - m4 * (cy + ty);
        [m0, m1, m2, m3, m4, m5]
    }
}

/// Number of unknowns of a perspective map.
const UNKNOWNS: usize = 8;

/// Four points (x, y): top left, top right, bottom right, bottom left.
pub(in crate::transform) type Quad = [(f64, f64); 4];

/// Returns the coefficients of the perspective map from the points `to` to the points `from`: x' = (a x + b y + c) / (g
/// x + h y + 1), y' = (d x + e y + f) / (g x + h y + 1). Returns `None` if three points of `to` are on a line.
pub(in crate::transform) fn coefficients(from: Quad, to: Quad) -> Option<[f64; UNKNOWNS]> {
    let mut rows = [[0.0; UNKNOWNS + 1]; UNKNOWNS];
    for (i, ((x, y), (u, v))) in to.into_iter().zip(from).enumerate() {
        rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    solve(rows)
}

/// Solves a linear system by Gaussian elimination with partial pivoting. The last column is the right-hand side.
fn solve(mut rows: [[f64; UNKNOWNS + 1]; UNKNOWNS]) -> Option<[f64; UNKNOWNS]> {
    for k in 0..UNKNOWNS {
        let pivot = (k..UNKNOWNS).max_by(|&a, &b| rows[a][k].abs().total_cmp(&rows[b][k].abs()))?;
        rows.swap(k, pivot);
        if rows[k][k].abs() < 1e-12 {
            return None;
        }
        let top = rows[k];
        for row in rows.iter_mut().skip(k + 1) {
            let factor = row[k] / top[k];
            row.iter_mut().zip(top).skip(k).for_each(|(value, above)| *value -= factor * above);
        }
    }
    let mut solution = [0.0; UNKNOWNS];
    for k in (0..UNKNOWNS).rev() {
        let known: f64 = (k + 1..UNKNOWNS).map(|i| rows[k][i] * solution[i]).sum();
        solution[k] = (rows[k][UNKNOWNS] - known) / rows[k][k];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_map_corners_to_their_targets() {
        let from: Quad = [(0.0, 0.0), (31.0, 0.0), (31.0, 23.0), (0.0, 23.0)];
        let to: Quad = [(3.0, 2.0), (28.0, 5.0), (30.0, 20.0), (1.0, 22.0)];
        let [a, b, c, d, e, f, g, h] = coefficients(from, to).unwrap();
        for ((x, y), (u, v)) in to.into_iter().zip(from) {
            let below = g * x + h * y + 1.0;
            assert!(((a * x + b * y + c) / below - u).abs() < 1e-9 && ((d * x + e * y + f) / below - v).abs() < 1e-9);
        }
        assert_eq!(coefficients(from, [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (5.0, 0.0)]), None);
    }
}
