//! Transforms between images or filters and the A x A grid, by the matrices of F(2x2, 3x3) for A = 4 and F(2x2, 5x5) for A = 6
//! (points 0, 1, -1, infinity, and 2, -2): B for inputs, A for outputs, G for filters, as the literature calls them.

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps,
};

use super::kernel::WIDTH;
use super::padded;
use crate::backend::TensorDesc;

/// Channels of a block.
pub const BLOCK: usize = 8;

/// One block of channels at one pixel or place.
type Lanes = __m256;

/// Side of the filters that a grid is for.
pub const fn kernel(a: usize) -> usize {
    a - 1
}

/// Tiles that one thread takes through all stages at once: their transforms stay in its caches.
pub const fn strip_len(a: usize) -> usize {
    if a == 4 { 24 } else { 12 }
}

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

/// What follows a forward pass: a bias for every channel, padding included, and ReLU.
#[derive(Clone, Copy)]
pub struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
}

#[target_feature(enable = "avx2,fma")]
fn zero() -> Lanes {
    _mm256_setzero_ps()
}

/// B^T d of one column or row.
#[target_feature(enable = "avx2,fma")]
fn input_line<const A: usize>(d: [Lanes; A]) -> [Lanes; A] {
    let mut t = [zero(); A];
    if A == 4 {
        t[0] = _mm256_sub_ps(d[0], d[2]);
        t[1] = _mm256_add_ps(d[1], d[2]);
        t[2] = _mm256_sub_ps(d[2], d[1]);
        t[3] = _mm256_sub_ps(d[1], d[3]);
    } else {
        let (four, five) = (_mm256_set1_ps(4.0), _mm256_set1_ps(5.0));
        let (even, odd) = (_mm256_fnmadd_ps(four, d[2], d[4]), _mm256_fnmadd_ps(four, d[1], d[3]));
        let (near, far) = (_mm256_sub_ps(d[4], d[2]), _mm256_sub_ps(d[3], d[1]));
        let twice = _mm256_add_ps(far, far);
        t[0] = _mm256_fmadd_ps(four, d[0], _mm256_fnmadd_ps(five, d[2], d[4]));
        t[1] = _mm256_add_ps(even, odd);
        t[2] = _mm256_sub_ps(even, odd);
        t[3] = _mm256_add_ps(near, twice);
        t[4] = _mm256_sub_ps(near, twice);
        t[5] = _mm256_fmadd_ps(four, d[1], _mm256_fnmadd_ps(five, d[3], d[5]));
    }
    t
}

/// A^T m.
#[target_feature(enable = "avx2,fma")]
fn output_line<const A: usize>(m: [Lanes; A]) -> [Lanes; 2] {
    let (sum, difference) = (_mm256_add_ps(m[1], m[2]), _mm256_sub_ps(m[1], m[2]));
    if A == 4 {
        return [_mm256_add_ps(m[0], sum), _mm256_sub_ps(difference, m[3])];
    }
    let (sum2, difference2) = (_mm256_add_ps(m[3], m[4]), _mm256_sub_ps(m[3], m[4]));
    let twice = _mm256_add_ps(difference2, difference2);
    [_mm256_add_ps(_mm256_add_ps(m[0], sum), sum2), _mm256_add_ps(_mm256_add_ps(difference, twice), m[5])]
}

/// A y.
#[target_feature(enable = "avx2,fma")]
fn gradient_line<const A: usize>(y: [Lanes; 2]) -> [Lanes; A] {
    let mut g = [zero(); A];
    g[0] = y[0];
    g[1] = _mm256_add_ps(y[0], y[1]);
    g[2] = _mm256_sub_ps(y[0], y[1]);
    if A == 4 {
        g[3] = _mm256_sub_ps(zero(), y[1]);
    } else {
        let twice = _mm256_add_ps(y[1], y[1]);
        g[3] = _mm256_add_ps(y[0], twice);
        g[4] = _mm256_sub_ps(y[0], twice);
        g[5] = y[1];
    }
    g
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

/// Writes a grid, its places `place` floats apart from `at` on.
#[target_feature(enable = "avx2,fma")]
fn scatter<const A: usize>(grid: [[Lanes; A]; A], at: usize, place: usize, to: &mut [f32]) {
    let to = to[at..][..(A * A - 1) * place + BLOCK].as_mut_ptr();
    for (r, row) in grid.into_iter().enumerate() {
        for (c, lanes) in row.into_iter().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            unsafe { _mm256_storeu_ps(to.add((A * r + c) * place), lanes) }
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
fn input_tiles<const A: usize>(plane: &[f32], s: Strip, v: &mut [f32]) {
    let Strip { h, w, .. } = s;
    let pad = kernel(A) / 2;
    for (i, top, left) in s.tiles() {
        // the tile begins `pad` before its first output; around the image there are zeros
        let mut columns = if top >= pad && left >= pad && top + A <= h + pad && left + A <= w + pad {
            patch::<A, A>(plane, w, top - pad, left - pad)
        } else {
            let mut columns = [[zero(); A]; A];
            for (c, column) in columns.iter_mut().enumerate() {
                for (r, lanes) in column.iter_mut().enumerate() {
                    let (row, col) = (top + r, left + c);
                    if row >= pad && row < h + pad && col >= pad && col < w + pad {
                        *lanes = load(plane, ((row - pad) * w + col - pad) * BLOCK);
                    }
                }
            }
            columns
        };
        for column in &mut columns {
            *column = input_line(*column);
        }
        let mut grid = transpose(columns);
        for row in &mut grid {
            *row = input_line(*row);
        }
        scatter(grid, i * s.step, s.place, v);
    }
}

/// A dy A^T of a strip of one channel block.
#[target_feature(enable = "avx2,fma")]
fn gradient_tiles<const A: usize>(plane: &[f32], s: Strip, d: &mut [f32]) {
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
        let rows = transpose([gradient_line::<A>(y[0]), gradient_line::<A>(y[1])]);
        let mut grid = [[zero(); A]; A];
        for (to, row) in grid.iter_mut().zip(rows) {
            *to = gradient_line(row);
        }
        scatter(grid, i * s.step, s.place, d);
    }
}

/// A^T m A of a strip into one channel block's plane, plus bias, then ReLU if asked for.
#[target_feature(enable = "avx2,fma")]
fn output_tiles<const A: usize>(m: &[f32], s: Strip, bias: Lanes, relu: bool, plane: &mut [f32]) {
    for (i, top, left) in s.tiles() {
        let from = m[i * s.step..][..(A * A - 1) * s.place + BLOCK].as_ptr();
        let mut columns = [[zero(); 2]; A];
        for (c, column) in columns.iter_mut().enumerate() {
            let mut cells = [zero(); A];
            for (r, lanes) in cells.iter_mut().enumerate() {
                // SAFETY: the last place ends where the slice taken above does.
                *lanes = unsafe { _mm256_loadu_ps(from.add((A * r + c) * s.place)) };
            }
            *column = output_line(cells);
        }
        for (r, row) in transpose(columns).into_iter().enumerate().take(s.h - top) {
            for (c, lanes) in output_line(row).into_iter().enumerate().take(s.w - left) {
                let sum = _mm256_add_ps(lanes, bias);
                // a NaN in the second operand stays
                let lanes = if relu { _mm256_max_ps(zero(), sum) } else { sum };
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
    pub fn inputs<const A: usize>(&self, n: usize, first: usize, count: usize, channels: usize, v: &mut [f32]) {
        let strip = strip::<A>(&self.desc, first, count, channels);
        for block in 0..self.desc.blocks() {
            input_tiles::<A>(self.plane(n, block), strip, &mut v[block * BLOCK..]);
        }
    }

    /// The same for gradients of outputs.
    #[target_feature(enable = "avx2,fma")]
    pub fn gradients<const A: usize>(&self, n: usize, first: usize, count: usize, channels: usize, d: &mut [f32]) {
        let strip = strip::<A>(&self.desc, first, count, channels);
        for block in 0..self.desc.blocks() {
            gradient_tiles::<A>(self.plane(n, block), strip, &mut d[block * BLOCK..]);
        }
    }
}

fn strip<const A: usize>(d: &TensorDesc, first: usize, count: usize, channels: usize) -> Strip {
    Strip { h: d.shape.h, w: d.shape.w, first, count, step: channels, place: strip_len(A) * channels }
}

/// Products of tiles `first .. first + count` back to the pixels of one sample.
#[target_feature(enable = "avx2,fma")]
pub fn outputs<const A: usize>(
    desc: &TensorDesc,
    m: &[f32],
    (first, count): (usize, usize),
    channels: usize,
    finish: Finish<'_>,
    y: &mut [f32],
) {
    let strip = strip::<A>(desc, first, count, channels);
    for (block, plane) in y.chunks_exact_mut(desc.shape.plane() * BLOCK).enumerate() {
        let bias = match finish.bias {
            Some(bias) => load(bias, block * BLOCK),
            None => zero(),
        };
        output_tiles::<A>(&m[block * BLOCK..], strip, bias, finish.relu, plane);
    }
}

/// G g of one column or row of a filter.
fn filter_line<const A: usize>(g: [f64; 5]) -> [f64; A] {
    let mut u = [0.0; A];
    if A == 4 {
        u[0] = g[0];
        u[1] = 0.5 * (g[0] + g[1] + g[2]);
        u[2] = 0.5 * (g[0] - g[1] + g[2]);
        u[3] = g[2];
    } else {
        let (even, odd) = (g[0] + g[2] + g[4], g[1] + g[3]);
        let (even2, odd2) = (g[0] + 4.0 * g[2] + 16.0 * g[4], 2.0 * g[1] + 8.0 * g[3]);
        u[0] = g[0] / 4.0;
        u[1] = -(even + odd) / 6.0;
        u[2] = -(even - odd) / 6.0;
        u[3] = (even2 + odd2) / 24.0;
        u[4] = (even2 - odd2) / 24.0;
        u[5] = g[4];
    }
    u
}

/// G^T u of one column or row.
fn filter_back_line<const A: usize>(u: [f64; A]) -> [f64; 5] {
    let (sum, difference) = (u[1] + u[2], u[1] - u[2]);
    if A == 4 {
        return [u[0] + 0.5 * sum, 0.5 * difference, 0.5 * sum + u[3], 0.0, 0.0];
    }
    let (sum2, difference2) = (u[3] + u[4], u[3] - u[4]);
    [
        u[0] / 4.0 - sum / 6.0 + sum2 / 24.0,
        -difference / 6.0 + difference2 / 12.0,
        (sum2 - sum) / 6.0,
        -difference / 6.0 + difference2 / 3.0,
        -sum / 6.0 + 2.0 * sum2 / 3.0 + u[5],
    ]
}

/// G g G^T of one filter, value by value of the grid.
fn filter<const A: usize>(g: &[f32], turned: bool, mut put: impl FnMut(usize, f32)) {
    let k = kernel(A);
    let value = |r: usize, c: usize| f64::from(if turned { g[k * k - 1 - (k * r + c)] } else { g[k * r + c] });
    let mut columns = [[0.0; A]; 5];
    for (c, column) in columns.iter_mut().enumerate().take(k) {
        let mut line = [0.0; 5];
        line.iter_mut().enumerate().take(k).for_each(|(r, v)| *v = value(r, c));
        *column = filter_line(line);
    }
    for r in 0..A {
        let row = filter_line::<A>(columns.map(|column| column[r]));
        row.into_iter().enumerate().for_each(|(c, u)| put(A * r + c, u as f32));
    }
}

/// Place of (input channel i, output channel o) in a grid of filters; places are `ci * co` apart.
fn at(i: usize, o: usize, ci: usize) -> usize {
    (o / WIDTH * ci + i) * WIDTH + o % WIDTH
}

/// Plain OIHW filters to the grid.
pub fn filters<const A: usize>(w: &[f32], ci: usize, co: usize, grid: &mut [f32]) {
    let (pi, po, taps) = (padded(ci), padded(co), kernel(A) * kernel(A));
    for (k, g) in w.chunks_exact(taps).take(ci * co).enumerate() {
        let to = at(k % ci, k / ci, pi);
        filter::<A>(g, false, |place, u| grid[place * pi * po + to] = u);
    }
}

/// Filters for the gradient of the input: turned by 180 degrees, input and output channels exchanged.
pub fn rotated_filters<const A: usize>(w: &[f32], ci: usize, co: usize, grid: &mut [f32]) {
    let (pi, po, taps) = (padded(ci), padded(co), kernel(A) * kernel(A));
    for (k, g) in w.chunks_exact(taps).take(ci * co).enumerate() {
        let to = at(k / ci, k % ci, po);
        filter::<A>(g, true, |place, u| grid[place * pi * po + to] = u);
    }
}

/// The threads' gradients on the grid, added in their order, to plain OIHW.
pub fn filter_gradient<const A: usize>(grids: &[f32], threads: usize, ci: usize, co: usize, dw: &mut [f32]) {
    let (pi, po, k) = (padded(ci), padded(co), kernel(A));
    let grid = A * A * pi * po;
    for (i, g) in dw.chunks_exact_mut(k * k).take(ci * co).enumerate() {
        let from = at(i % ci, i / ci, pi);
        let sum =
            |place: usize| -> f64 { (0..threads).map(|t| f64::from(grids[t * grid + place * pi * po + from])).sum() };
        let columns: [[f64; 5]; A] =
            std::array::from_fn(|c| filter_back_line::<A>(std::array::from_fn(|r| sum(A * r + c))));
        for r in 0..k {
            let row = filter_back_line::<A>(std::array::from_fn(|c| columns[c][r]));
            g[k * r..][..k].iter_mut().zip(row).for_each(|(g, v)| *g = v as f32);
        }
    }
}
