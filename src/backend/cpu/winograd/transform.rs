//! Transforms between images and the A x A grid, by the matrices of F(2x2, 3x3) for A = 4 and F(2x2, 5x5) for A = 6 (points 0,
//! 1, -1, infinity, and 2, -2): B for inputs, A for outputs, as the literature calls them. Filters are next door.

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps,
};

use super::kernel::step;
use crate::backend::TensorDesc;

/// Channels of a block.
pub const BLOCK: usize = 8;

/// One block of channels at one pixel or place.
pub type Lanes = __m256;

/// Side of the filters that a grid is for.
pub const fn kernel(a: usize) -> usize {
    a - 1
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
pub fn zero() -> Lanes {
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
pub fn transpose<const R: usize, const C: usize>(columns: [[Lanes; R]; C]) -> [[Lanes; C]; R] {
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

/// A^T m A of a strip into one channel block's plane, plus bias, then ReLU if requested.
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

/// Tiles `first .. first + count` of a run of samples, and the strip that holds them: `len` tiles at every place of the grid.
#[derive(Clone, Copy)]
pub struct Run {
    pub first: usize,
    pub count: usize,
    pub len: usize,
}

impl Run {
    /// The parts of it that lie in one sample each: the sample, the tiles' numbers there, and where they begin in the strip.
    #[target_feature(enable = "avx2,fma")]
    fn each(self, d: &TensorDesc, channels: usize, mut f: impl FnMut(usize, Strip, usize)) {
        let (tiles, step) = (tiles(d), step(channels));
        let mut done = 0;
        while done < self.count {
            let (n, first) = ((self.first + done) / tiles, (self.first + done) % tiles);
            let count = (self.count - done).min(tiles - first);
            f(n, Strip { h: d.shape.h, w: d.shape.w, first, count, step, place: self.len * step }, done * step);
            done += count;
        }
    }
}

impl<'a> Side<'a> {
    /// From sample `n` on.
    pub fn skip(self, n: usize) -> Self {
        Self { data: &self.data[n * self.desc.sample_elems()..], ..self }
    }

    /// The blocks of sample `n`, each with its number.
    fn planes(&self, n: usize) -> impl Iterator<Item = (usize, &'a [f32])> {
        let (len, blocks) = (self.desc.shape.plane() * BLOCK, self.desc.blocks());
        self.data[n * blocks * len..][..blocks * len].chunks_exact(len).enumerate()
    }

    /// Transformed inputs of a run of tiles: place, tile, channel (of `channels`).
    #[target_feature(enable = "avx2,fma")]
    pub fn inputs<const A: usize>(&self, run: Run, channels: usize, v: &mut [f32]) {
        self.clear_rest::<A>(run, channels, v);
        run.each(&self.desc, channels, |n, strip, at| {
            for (block, plane) in self.planes(n) {
                input_tiles::<A>(plane, strip, &mut v[at + block * BLOCK..]);
            }
        });
    }

    /// The same for gradients of outputs.
    #[target_feature(enable = "avx2,fma")]
    pub fn gradients<const A: usize>(&self, run: Run, channels: usize, d: &mut [f32]) {
        self.clear_rest::<A>(run, channels, d);
        run.each(&self.desc, channels, |n, strip, at| {
            for (block, plane) in self.planes(n) {
                gradient_tiles::<A>(plane, strip, &mut d[at + block * BLOCK..]);
            }
        });
    }

    /// Zeros in the channels beyond the last block, which no plane fills.
    fn clear_rest<const A: usize>(&self, run: Run, channels: usize, v: &mut [f32]) {
        let have = self.desc.blocks() * BLOCK;
        if have < channels {
            v[..A * A * run.len * step(channels)]
                .chunks_exact_mut(step(channels))
                .for_each(|tile| tile[have..channels].fill(0.0));
        }
    }
}

/// Products of a run of tiles back to the pixels of its samples.
#[target_feature(enable = "avx2,fma")]
pub fn outputs<const A: usize>(
    desc: &TensorDesc,
    m: &[f32],
    run: Run,
    channels: usize,
    finish: Finish<'_>,
    y: &mut [f32],
) {
    let (plane, sample) = (desc.shape.plane() * BLOCK, desc.sample_elems());
    run.each(desc, channels, |n, strip, at| {
        for (block, plane) in y[n * sample..][..sample].chunks_exact_mut(plane).enumerate() {
            let bias = finish.bias.map_or(zero(), |bias| load(bias, block * BLOCK));
            output_tiles::<A>(&m[at + block * BLOCK..], strip, bias, finish.relu, plane);
        }
    });
}
