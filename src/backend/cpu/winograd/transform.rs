//! Transforms between images and the A x A grid, by the matrices of F(2x2, 3x3) for A = 4 and F(2x2, 5x5) for A = 6 (points 0,
//! 1, -1, infinity, and 2, -2): B for inputs, A for outputs, as the literature calls them. Filters are next door.

use super::strip::{Order, Run, Strip};
use super::vector::Vectors;
use crate::backend::TensorDesc;

/// Side of the filters that a grid is for.
pub const fn kernel(a: usize) -> usize {
    a - 1
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

/// B^T d of one column or row.
#[inline(always)]
fn input_line<S: Vectors, const A: usize>(set: S, d: [S::Lanes; A]) -> [S::Lanes; A] {
    let mut t = [set.zero(); A];
    if A == 4 {
        t[0] = set.sub(d[0], d[2]);
        t[1] = set.add(d[1], d[2]);
        t[2] = set.sub(d[2], d[1]);
        t[3] = set.sub(d[1], d[3]);
    } else {
        let (four, five) = (set.splat(4.0), set.splat(5.0));
        let (even, odd) = (set.sub_mul(d[4], four, d[2]), set.sub_mul(d[3], four, d[1]));
        let (near, far) = (set.sub(d[4], d[2]), set.sub(d[3], d[1]));
        let twice = set.add(far, far);
        t[0] = set.mul_add(four, d[0], set.sub_mul(d[4], five, d[2]));
        t[1] = set.add(even, odd);
        t[2] = set.sub(even, odd);
        t[3] = set.add(near, twice);
        t[4] = set.sub(near, twice);
        t[5] = set.mul_add(four, d[1], set.sub_mul(d[5], five, d[3]));
    }
    t
}

/// A^T m.
#[inline(always)]
pub fn output_line<S: Vectors, const A: usize>(set: S, m: [S::Lanes; A]) -> [S::Lanes; 2] {
    let (sum, difference) = (set.add(m[1], m[2]), set.sub(m[1], m[2]));
    if A == 4 {
        return [set.add(m[0], sum), set.sub(difference, m[3])];
    }
    let (sum2, difference2) = (set.add(m[3], m[4]), set.sub(m[3], m[4]));
    let twice = set.add(difference2, difference2);
    [set.add(set.add(m[0], sum), sum2), set.add(set.add(difference, twice), m[5])]
}

/// A y.
#[inline(always)]
fn gradient_line<S: Vectors, const A: usize>(set: S, y: [S::Lanes; 2]) -> [S::Lanes; A] {
    let mut g = [set.zero(); A];
    g[0] = y[0];
    g[1] = set.add(y[0], y[1]);
    g[2] = set.sub(y[0], y[1]);
    if A == 4 {
        g[3] = set.sub(set.zero(), y[1]);
    } else {
        let twice = set.add(y[1], y[1]);
        g[3] = set.add(y[0], twice);
        g[4] = set.sub(y[0], twice);
        g[5] = y[1];
    }
    g
}

#[inline(always)]
fn load<S: Vectors>(set: S, from: &[f32], at: usize) -> S::Lanes {
    let from = &from[at..at + S::LANES];
    // SAFETY: the slice taken above.
    unsafe { set.load(from.as_ptr()) }
}

#[inline(always)]
fn store<S: Vectors>(set: S, lanes: S::Lanes, to: &mut [f32], at: usize) {
    let to = &mut to[at..at + S::LANES];
    // SAFETY: the slice taken above.
    unsafe { set.store(lanes, to.as_mut_ptr()) }
}

/// Rows of a grid from its columns.
#[inline(always)]
pub fn transpose<T: Copy, const R: usize, const C: usize>(columns: [[T; R]; C]) -> [[T; C]; R] {
    let mut rows = [[columns[0][0]; C]; R];
    for (c, column) in columns.into_iter().enumerate() {
        for (r, lanes) in column.into_iter().enumerate() {
            rows[r][c] = lanes;
        }
    }
    rows
}

/// Writes a grid, its places `place` floats apart from `at` on.
#[inline(always)]
fn scatter<S: Vectors, const A: usize>(set: S, grid: [[S::Lanes; A]; A], at: usize, place: usize, to: &mut [f32]) {
    let to = to[at..][..(A * A - 1) * place + S::LANES].as_mut_ptr();
    for (r, row) in grid.into_iter().enumerate() {
        for (c, lanes) in row.into_iter().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            unsafe { set.store(lanes, to.add((A * r + c) * place)) }
        }
    }
}

/// Reads R rows of C pixels from row `top`, column `left` on, all of them inside.
#[inline(always)]
fn patch<S: Vectors, const R: usize, const C: usize>(
    set: S,
    plane: &[f32],
    w: usize,
    top: usize,
    left: usize,
) -> [[S::Lanes; R]; C] {
    let from = plane[(top * w + left) * S::LANES..][..((R - 1) * w + C) * S::LANES].as_ptr();
    let mut columns = [[set.zero(); R]; C];
    for (c, column) in columns.iter_mut().enumerate() {
        for (r, lanes) in column.iter_mut().enumerate() {
            // SAFETY: the last pixel ends where the slice taken above does.
            *lanes = unsafe { set.load(from.add((r * w + c) * S::LANES)) };
        }
    }
    columns
}

/// B^T d of a column of A pixels, `left` counted from `pad` before the image; of its rows, which begin at `above`, only those from
/// `rows[0]` to `rows[1]` are inside. Around the image there are zeros.
#[inline(always)]
fn input_column<S: Vectors, const A: usize>(
    set: S,
    above: *const f32,
    w: usize,
    left: usize,
    rows: [usize; 2],
) -> [S::Lanes; A] {
    let pad = kernel(A) / 2;
    let mut d = [set.zero(); A];
    if left >= pad && left < w + pad {
        for (r, d) in d.iter_mut().enumerate() {
            if r >= rows[0] && r < rows[1] {
                // SAFETY: column and row are inside of the image.
                *d = unsafe { set.load(above.wrapping_add((r * w + left - pad) * S::LANES)) };
            }
        }
    }
    input_line(set, d)
}

/// The tile's columns from `first` on.
#[inline(always)]
fn input_columns<S: Vectors, const A: usize>(
    set: S,
    above: *const f32,
    w: usize,
    left: usize,
    rows: [usize; 2],
    first: usize,
    columns: &mut [[S::Lanes; A]; A],
) {
    for (c, column) in columns.iter_mut().enumerate().skip(first) {
        *column = input_column(set, above, w, left + c, rows);
    }
}

/// B^T d B of a strip of one channel block.
#[inline(always)]
fn input_tiles<S: Vectors, const A: usize>(set: S, plane: &[f32], s: Strip, v: &mut [f32]) {
    let (w, pad) = (s.w, kernel(A) / 2);
    let plane = plane[..s.h * w * S::LANES].as_ptr();
    // a tile shares all but two of its columns with its neighbour, which pays where the registers hold them
    let shared = if A == 4 { A - 2 } else { 0 };
    let mut i = 0;
    while i < s.count {
        let (top, mut left) = s.tile(i);
        let end = s.count.min(i + w.div_ceil(2) - left / 2);
        let rows = [pad.saturating_sub(top), A.min(s.h + pad - top)];
        let above = plane.wrapping_add(top * w * S::LANES).wrapping_sub(pad * w * S::LANES);
        let mut columns = [[set.zero(); A]; A];
        for c in 0..shared {
            columns[c + 2] = input_column(set, above, w, left + c, rows);
        }
        while i < end {
            for c in 0..shared {
                columns[c] = columns[c + 2];
            }
            // what is known of an inner tile makes its loads free of conditions
            if rows == [0, A] && left + shared >= pad && left + A <= w + pad {
                input_columns(set, above, w, left, [0, A], shared, &mut columns);
            } else {
                input_columns(set, above, w, left, rows, shared, &mut columns);
            }
            let mut grid = transpose(columns);
            for row in &mut grid {
                *row = input_line(set, *row);
            }
            scatter(set, grid, i * s.order.tile, s.order.place, v);
            i += 1;
            left += 2;
        }
    }
}

/// A dy A^T of a strip of one channel block.
#[inline(always)]
fn gradient_tiles<S: Vectors, const A: usize>(set: S, plane: &[f32], s: Strip, d: &mut [f32]) {
    for (i, top, left) in s.tiles() {
        let y = if top + 2 <= s.h && left + 2 <= s.w {
            patch::<S, 2, 2>(set, plane, s.w, top, left)
        } else {
            let mut y = [[set.zero(); 2]; 2];
            for (c, column) in y.iter_mut().enumerate().take(s.w - left) {
                for (r, lanes) in column.iter_mut().enumerate().take(s.h - top) {
                    *lanes = load(set, plane, ((top + r) * s.w + left + c) * S::LANES);
                }
            }
            y
        };
        let rows = transpose([gradient_line::<S, A>(set, y[0]), gradient_line::<S, A>(set, y[1])]);
        let mut grid = [[set.zero(); A]; A];
        for (to, row) in grid.iter_mut().zip(rows) {
            *to = gradient_line(set, row);
        }
        scatter(set, grid, i * s.order.tile, s.order.place, d);
    }
}

/// A^T m A of one tile, whose places are `place` floats apart.
#[inline(always)]
fn output_tile<S: Vectors, const A: usize>(set: S, m: &[f32], place: usize) -> [[S::Lanes; 2]; 2] {
    let from = m[..(A * A - 1) * place + S::LANES].as_ptr();
    let mut columns = [[set.zero(); 2]; A];
    for (c, column) in columns.iter_mut().enumerate() {
        let mut cells = [set.zero(); A];
        for (r, lanes) in cells.iter_mut().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            *lanes = unsafe { set.load(from.add((A * r + c) * place)) };
        }
        *column = output_line(set, cells);
    }
    let [upper, lower] = transpose(columns);
    [output_line(set, upper), output_line(set, lower)]
}

/// Outputs of a strip into one channel block's plane, plus bias, then ReLU if requested: from the grid, or as they are if `FOLDED`.
#[inline(always)]
fn output_tiles<S: Vectors, const A: usize, const FOLDED: bool>(
    set: S,
    m: &[f32],
    s: Strip,
    bias: S::Lanes,
    relu: bool,
    plane: &mut [f32],
) {
    for (i, top, left) in s.tiles() {
        let m = &m[i * s.order.tile..];
        let y = if FOLDED {
            [[load(set, m, 0), load(set, m, S::LANES)], [load(set, m, 2 * S::LANES), load(set, m, 3 * S::LANES)]]
        } else {
            output_tile::<S, A>(set, m, s.order.place)
        };
        for (r, row) in y.into_iter().enumerate().take(s.h - top) {
            for (c, lanes) in row.into_iter().enumerate().take(s.w - left) {
                let sum = set.add(lanes, bias);
                // a NaN in the second operand stays
                let lanes = if relu { set.max(set.zero(), sum) } else { sum };
                store(set, lanes, plane, ((top + r) * s.w + left + c) * S::LANES);
            }
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
        let (len, blocks) = (self.desc.shape.plane() * self.desc.block, self.desc.blocks());
        self.data[n * blocks * len..][..blocks * len].chunks_exact(len).enumerate()
    }

    /// Transformed inputs of a run of tiles.
    #[inline(always)]
    pub fn inputs<S: Vectors, const A: usize>(&self, set: S, run: Run, order: Order, v: &mut [f32]) {
        for (n, strip, at) in run.parts(&self.desc, order) {
            for (block, plane) in self.planes(n) {
                input_tiles::<S, A>(set, plane, strip, &mut v[at + block * order.block..]);
            }
        }
    }

    /// The same for gradients of outputs.
    #[inline(always)]
    pub fn gradients<S: Vectors, const A: usize>(&self, set: S, run: Run, order: Order, d: &mut [f32]) {
        for (n, strip, at) in run.parts(&self.desc, order) {
            for (block, plane) in self.planes(n) {
                gradient_tiles::<S, A>(set, plane, strip, &mut d[at + block * order.block..]);
            }
        }
    }
}

/// Products of a run of tiles back to the pixels of its samples: from the grid, or from outputs, four a tile, if `FOLDED`.
#[inline(always)]
pub fn outputs<S: Vectors, const A: usize, const FOLDED: bool>(
    set: S,
    desc: &TensorDesc,
    m: &[f32],
    run: Run,
    order: Order,
    finish: Finish<'_>,
    y: &mut [f32],
) {
    let (plane, sample) = (desc.shape.plane() * S::LANES, desc.sample_elems());
    for (n, strip, at) in run.parts(desc, order) {
        for (block, plane) in y[n * sample..][..sample].chunks_exact_mut(plane).enumerate() {
            let bias = match finish.bias {
                Some(bias) => load(set, bias, block * S::LANES),
                None => set.zero(),
            };
            output_tiles::<S, A, FOLDED>(set, &m[at + block * order.block..], strip, bias, finish.relu, plane);
        }
    }
}
