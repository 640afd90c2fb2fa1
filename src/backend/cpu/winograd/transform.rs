//! Transforms between images or filters and the 4x4 grid, by the matrices of F(2x2, 3x3).

use std::arch::x86_64::{__m256, _mm256_add_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps};

use super::kernel::WIDTH;
use super::{STRIP, padded};
use crate::backend::TensorDesc;

/// Channels of a block.
pub const BLOCK: usize = 8;

/// Places of the grid.
pub const PLACES: usize = 16;

/// One block of channels at one pixel or place.
type Lanes = __m256;

/// Tiles of one image.
pub fn tiles(d: &TensorDesc) -> usize {
    d.shape.h.div_ceil(2) * d.shape.w.div_ceil(2)
}

/// A blocked tensor to read from.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub desc: TensorDesc,
    pub data: &'a [f32],
}

#[target_feature(enable = "avx2,fma")]
fn zero() -> Lanes {
    _mm256_setzero_ps()
}

/// B^T d for one column or row of four.
#[target_feature(enable = "avx2,fma")]
fn input4(d: [Lanes; 4]) -> [Lanes; 4] {
    [_mm256_sub_ps(d[0], d[2]), _mm256_add_ps(d[1], d[2]), _mm256_sub_ps(d[2], d[1]), _mm256_sub_ps(d[1], d[3])]
}

/// A^T m.
#[target_feature(enable = "avx2,fma")]
fn output2(m: [Lanes; 4]) -> [Lanes; 2] {
    let (sum, difference) = (_mm256_add_ps(m[1], m[2]), _mm256_sub_ps(m[1], m[2]));
    [_mm256_add_ps(m[0], sum), _mm256_sub_ps(difference, m[3])]
}

/// A y.
#[target_feature(enable = "avx2,fma")]
fn gradient4(y: [Lanes; 2]) -> [Lanes; 4] {
    [y[0], _mm256_add_ps(y[0], y[1]), _mm256_sub_ps(y[0], y[1]), _mm256_sub_ps(zero(), y[1])]
}

#[target_feature(enable = "avx2,fma")]
fn load(from: &[f32], at: usize) -> Lanes {
    let from = &from[at..at + BLOCK];
    // SAFETY: eight values lie there.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

#[target_feature(enable = "avx2,fma")]
fn store(lanes: Lanes, to: &mut [f32], at: usize) {
    let to = &mut to[at..at + BLOCK];
    // SAFETY: room for eight values.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), lanes) }
}

/// Rows of a grid from its columns.
#[target_feature(enable = "avx2,fma")]
fn transpose<const R: usize, const C: usize>(columns: [[Lanes; R]; C]) -> [[Lanes; C]; R] {
    let mut rows = [[zero(); C]; R];
    for (c, column) in columns.into_iter().enumerate() {
        for (r, lanes) in column.into_iter().enumerate() {
            rows[r][c] = lanes;
        }
    }
    rows
}

/// Writes a 4x4 grid, its places `place` floats apart from `at` on.
#[target_feature(enable = "avx2,fma")]
fn scatter(grid: [[Lanes; 4]; 4], at: usize, place: usize, to: &mut [f32]) {
    let to = to[at..][..(PLACES - 1) * place + BLOCK].as_mut_ptr();
    for (r, row) in grid.into_iter().enumerate() {
        for (c, lanes) in row.into_iter().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            unsafe { _mm256_storeu_ps(to.add((4 * r + c) * place), lanes) }
        }
    }
}

/// Reads R rows of C pixels from row `top`, column `left` on, all of them inside.
#[target_feature(enable = "avx2,fma")]
fn patch<const R: usize, const C: usize>(plane: &[f32], w: usize, top: usize, left: usize) -> [[Lanes; R]; C] {
    let from = plane[(top * w + left) * BLOCK..][..((R - 1) * w + C) * BLOCK].as_ptr();
    let mut columns = [[zero(); R]; C];
    for (c, column) in columns.iter_mut().enumerate() {
        for (r, lanes) in column.iter_mut().enumerate() {
            // SAFETY: the last pixel ends where the slice taken above does.
            *lanes = unsafe { _mm256_loadu_ps(from.add((r * w + c) * BLOCK)) };
        }
    }
    columns
}

/// Where tiles lie: an image of h rows and w columns, tiles `first .. first + count`; `step` floats from tile to tile and
/// `place` from place to place of the grid.
#[derive(Clone, Copy)]
struct Strip {
    h: usize,
    w: usize,
    first: usize,
    count: usize,
    step: usize,
    place: usize,
}

impl Strip {
    /// First output row and column of each tile, with its number in the strip.
    fn tiles(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let across = self.w.div_ceil(2);
        (0..self.count).map(move |i| (i, (self.first + i) / across * 2, (self.first + i) % across * 2))
    }
}

/// B^T d B of a strip of one channel block.
#[target_feature(enable = "avx2,fma")]
fn input_tiles(plane: &[f32], s: Strip, v: &mut [f32]) {
    let Strip { h, w, .. } = s;
    for (i, top, left) in s.tiles() {
        // row and column 0 of the tile lie one before its first output; around the image there are zeros
        let mut columns = if top >= 1 && left >= 1 && top + 3 <= h && left + 3 <= w {
            patch::<4, 4>(plane, w, top - 1, left - 1)
        } else {
            let mut columns = [[zero(); 4]; 4];
            for (c, column) in columns.iter_mut().enumerate() {
                for (r, lanes) in column.iter_mut().enumerate() {
                    let (row, col) = (top + r, left + c);
                    if row >= 1 && row <= h && col >= 1 && col <= w {
                        *lanes = load(plane, ((row - 1) * w + col - 1) * BLOCK);
                    }
                }
            }
            columns
        };
        for column in &mut columns {
            *column = input4(*column);
        }
        let mut grid = transpose(columns);
        for row in &mut grid {
            *row = input4(*row);
        }
        scatter(grid, i * s.step, s.place, v);
    }
}

/// A dy A^T of a strip of one channel block.
#[target_feature(enable = "avx2,fma")]
fn gradient_tiles(plane: &[f32], s: Strip, d: &mut [f32]) {
    for (i, top, left) in s.tiles() {
        let y = if top + 2 <= s.h && left + 2 <= s.w {
            patch::<2, 2>(plane, s.w, top, left)
        } else {
            let mut y = [[zero(); 2]; 2];
            for (c, column) in y.iter_mut().enumerate().take(s.w - left) {
                for (r, lanes) in column.iter_mut().enumerate().take(s.h - top) {
                    *lanes = load(plane, ((top + r) * s.w + left + c) * BLOCK);
                }
            }
            y
        };
        let rows = transpose([gradient4(y[0]), gradient4(y[1])]);
        let mut grid = [[zero(); 4]; 4];
        for (to, row) in grid.iter_mut().zip(rows) {
            *to = gradient4(row);
        }
        scatter(grid, i * s.step, s.place, d);
    }
}

/// A^T m A of a strip into one channel block's plane.
#[target_feature(enable = "avx2,fma")]
fn output_tiles(m: &[f32], s: Strip, plane: &mut [f32]) {
    for (i, top, left) in s.tiles() {
        let from = m[i * s.step..][..(PLACES - 1) * s.place + BLOCK].as_ptr();
        let mut columns = [[zero(); 2]; 4];
        for (c, column) in columns.iter_mut().enumerate() {
            let mut cells = [zero(); 4];
            for (r, lanes) in cells.iter_mut().enumerate() {
                // SAFETY: the last place ends where the slice taken above does.
                *lanes = unsafe { _mm256_loadu_ps(from.add((4 * r + c) * s.place)) };
            }
            *column = output2(cells);
        }
        for (r, row) in transpose(columns).into_iter().enumerate().take(s.h - top) {
            for (c, lanes) in output2(row).into_iter().enumerate().take(s.w - left) {
                store(lanes, plane, ((top + r) * s.w + left + c) * BLOCK);
            }
        }
    }
}

impl Side<'_> {
    fn plane(&self, n: usize, block: usize) -> &[f32] {
        let len = self.desc.shape.plane() * BLOCK;
        &self.data[(n * self.desc.blocks() + block) * len..][..len]
    }

    /// Transformed inputs of tiles `first .. first + count` of sample `n`: place, tile, channel (of `channels`).
    #[target_feature(enable = "avx2,fma")]
    pub fn inputs(&self, n: usize, first: usize, count: usize, channels: usize, v: &mut [f32]) {
        let strip = strip(&self.desc, first, count, channels);
        for block in 0..self.desc.blocks() {
            input_tiles(self.plane(n, block), strip, &mut v[block * BLOCK..]);
        }
    }

    /// The same for gradients of outputs.
    #[target_feature(enable = "avx2,fma")]
    pub fn gradients(&self, n: usize, first: usize, count: usize, channels: usize, d: &mut [f32]) {
        let strip = strip(&self.desc, first, count, channels);
        for block in 0..self.desc.blocks() {
            gradient_tiles(self.plane(n, block), strip, &mut d[block * BLOCK..]);
        }
    }
}

fn strip(d: &TensorDesc, first: usize, count: usize, channels: usize) -> Strip {
    Strip { h: d.shape.h, w: d.shape.w, first, count, step: channels, place: STRIP * channels }
}

/// Products of tiles `first .. first + count` back to the pixels of one sample.
#[target_feature(enable = "avx2,fma")]
pub fn outputs(desc: &TensorDesc, m: &[f32], first: usize, count: usize, channels: usize, y: &mut [f32]) {
    let strip = strip(desc, first, count, channels);
    for (block, plane) in y.chunks_exact_mut(desc.shape.plane() * BLOCK).enumerate() {
        output_tiles(&m[block * BLOCK..], strip, plane);
    }
}

/// G g G^T of one 3x3 filter.
fn filter(g: [f32; 9]) -> [f32; PLACES] {
    let side = |a: f32, b: f32, c: f32| [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c];
    let columns: [[f32; 4]; 3] = std::array::from_fn(|c| side(g[c], g[3 + c], g[6 + c]));
    let mut u = [0.0; PLACES];
    for r in 0..4 {
        u[4 * r..4 * r + 4].copy_from_slice(&side(columns[0][r], columns[1][r], columns[2][r]));
    }
    u
}

/// G^T u G: the gradient of one 3x3 filter.
fn filter_back(u: [f32; PLACES]) -> [f32; 9] {
    let side = |a: f32, b: f32, c: f32, d: f32| [a + 0.5 * (b + c), 0.5 * (b - c), 0.5 * (b + c) + d];
    let columns: [[f32; 3]; 4] = std::array::from_fn(|c| side(u[c], u[4 + c], u[8 + c], u[12 + c]));
    let mut g = [0.0; 9];
    for r in 0..3 {
        let row = side(columns[0][r], columns[1][r], columns[2][r], columns[3][r]);
        g[3 * r..3 * r + 3].copy_from_slice(&row);
    }
    g
}

/// Place of (input channel i, output channel o) in a grid of filters; places are `ci * co` apart.
fn at(i: usize, o: usize, ci: usize) -> usize {
    (o / WIDTH * ci + i) * WIDTH + o % WIDTH
}

/// Plain OIHW filters to the grid.
pub fn filters(w: &[f32], ci: usize, co: usize, grid: &mut [f32]) {
    let (pi, po) = (padded(ci), padded(co));
    for (k, g) in w.as_chunks::<9>().0.iter().take(ci * co).enumerate() {
        let to = at(k % ci, k / ci, pi);
        for (place, u) in filter(*g).into_iter().enumerate() {
            grid[place * pi * po + to] = u;
        }
    }
}

/// Filters for the gradient of the input: turned by 180 degrees, input and output channels exchanged.
pub fn rotated_filters(w: &[f32], ci: usize, co: usize, grid: &mut [f32]) {
    let (pi, po) = (padded(ci), padded(co));
    for (k, g) in w.as_chunks::<9>().0.iter().take(ci * co).enumerate() {
        let to = at(k / ci, k % ci, po);
        let mut turned = *g;
        turned.reverse();
        for (place, u) in filter(turned).into_iter().enumerate() {
            grid[place * pi * po + to] = u;
        }
    }
}

/// The threads' gradients on the grid, added in their order, to plain OIHW.
pub fn filter_gradient(grids: &[f32], threads: usize, ci: usize, co: usize, dw: &mut [f32]) {
    let (pi, po) = (padded(ci), padded(co));
    let grid = PLACES * pi * po;
    for (k, g) in dw.as_chunks_mut::<9>().0.iter_mut().take(ci * co).enumerate() {
        let from = at(k % ci, k / ci, pi);
        let sum = |place: usize| (0..threads).map(|t| grids[t * grid + place * pi * po + from]).sum();
        *g = filter_back(std::array::from_fn(sum));
    }
}
