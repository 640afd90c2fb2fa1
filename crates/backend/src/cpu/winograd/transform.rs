//! Transforms from images to the grid: B^T d B of inputs, A y A^T of the gradients of outputs.

use std::ops::Range;

use super::super::vector::{Vectors, load};
use super::lines::{gradient_line, input_line};
use super::normalised::{AsItIs, Made, Normalised};
use super::strip::{Order, Run, Strip};
use crate::TensorDesc;

/// A blocked tensor to read from.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub desc: TensorDesc,
    pub data: &'a [f32],
    /// Rows and columns of zeros before each image, where its first window begins.
    pub pad: usize,
    /// The norm that each value goes through as it is read, if any.
    pub normal: Option<Normalised<'a>>,
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
fn scatter<S: Vectors, const A: usize, const B: usize>(
    set: S,
    grid: [[S::Lanes; B]; A],
    at: usize,
    place: usize,
    to: &mut [f32],
) {
    let to = to[at..][..(A * B - 1) * place + S::LANES].as_mut_ptr();
    for (r, row) in grid.into_iter().enumerate() {
        for (c, lanes) in row.into_iter().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            unsafe { set.store(lanes, to.add((B * r + c) * place)) }
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

/// How the pixels of a row of tiles are read: lines of `w` of them that begin at `above`, of which those from `rows[0]` to `rows[1]` are
/// inside, and what is made of each. Around the image there are zeros, `pad` of them before it.
#[derive(Clone, Copy)]
struct Pixels<P> {
    above: *const f32,
    w: usize,
    pad: usize,
    rows: [usize; 2],
    made: P,
}

impl<P> Pixels<P> {
    /// B^T d of a column of A pixels, `left` counted from `pad` before the image; all of them are inside if `inner`.
    #[inline(always)]
    fn column<S: Vectors, const A: usize>(self, set: S, left: usize, inner: bool) -> [S::Lanes; A]
    where
        P: Made<S>,
    {
        let Self { above, w, pad, rows, made } = self;
        let mut d = [set.zero(); A];
        if inner || left >= pad && left < w + pad {
            for (r, d) in d.iter_mut().enumerate() {
                if inner || r >= rows[0] && r < rows[1] {
                    // SAFETY: column and row are inside of the image.
                    let value = unsafe { set.load(above.wrapping_add((r * w + left - pad) * S::LANES)) };
                    *d = made.of(set, value);
                }
            }
        }
        input_line::<S, A, 2>(set, d)
    }

    /// The columns of a tile from `first` on.
    #[inline(always)]
    fn columns<S: Vectors, const A: usize, const B: usize>(
        self,
        set: S,
        left: usize,
        first: usize,
        inner: bool,
        columns: &mut [[S::Lanes; A]; B],
    ) where
        P: Made<S>,
    {
        for (c, column) in columns.iter_mut().enumerate().skip(first) {
            *column = self.column(set, left + c, inner);
        }
    }
}

/// B^T d B of a strip of one channel block of an image of h rows and w columns, with `pad` of zeros before it.
#[inline(always)]
fn input_tiles<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    plane: &[f32],
    ([h, w], pad): ([usize; 2], usize),
    s: Strip,
    made: impl Made<S>,
    v: &mut [f32],
) {
    let plane = plane[..h * w * S::LANES].as_ptr();
    // a tile shares all but M of its columns with its neighbour, which pays where the registers hold them
    let shared = if A == 4 { B - M } else { 0 };
    let mut i = 0;
    while i < s.count {
        let (top, mut left) = s.tile(i);
        let end = s.count.min(i + (s.w - left).div_ceil(M));
        let rows = [pad.saturating_sub(top), A.min(h + pad - top)];
        let above = plane.wrapping_add(top * w * S::LANES).wrapping_sub(pad * w * S::LANES);
        let pixels = Pixels { above, w, pad, rows, made };
        let mut columns = [[set.zero(); A]; B];
        for c in 0..shared {
            columns[c + M] = pixels.column(set, left + c, false);
        }
        while i < end {
            for c in 0..shared {
                columns[c] = columns[c + M];
            }
            // what is known of an inner tile makes its loads free of conditions
            if rows == [0, A] && left + shared >= pad && left + B <= w + pad {
                pixels.columns(set, left, shared, true, &mut columns);
            } else {
                pixels.columns(set, left, shared, false, &mut columns);
            }
            let mut grid = transpose(columns);
            for row in &mut grid {
                *row = input_line::<S, B, M>(set, *row);
            }
            scatter(set, grid, i * s.order.tile, s.order.place, v);
            i += 1;
            left += M;
        }
    }
}

/// A dy A^T of a strip of one channel block.
#[inline(always)]
fn gradient_tiles<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    plane: &[f32],
    s: Strip,
    d: &mut [f32],
) {
    for (i, top, left) in s.tiles() {
        let y = if top + 2 <= s.h && left + M <= s.w {
            patch::<S, 2, M>(set, plane, s.w, top, left)
        } else {
            let mut y = [[set.zero(); 2]; M];
            for (c, column) in y.iter_mut().enumerate().take(s.w - left) {
                for (r, lanes) in column.iter_mut().enumerate().take(s.h - top) {
                    *lanes = load(set, plane, ((top + r) * s.w + left + c) * S::LANES);
                }
            }
            y
        };
        let mut columns = [[set.zero(); A]; M];
        for (to, column) in columns.iter_mut().zip(y) {
            *to = gradient_line::<S, A, 2>(set, column);
        }
        let mut grid = [[set.zero(); B]; A];
        for (to, row) in grid.iter_mut().zip(transpose(columns)) {
            *to = gradient_line::<S, B, M>(set, row);
        }
        scatter(set, grid, i * s.order.tile, s.order.place, d);
    }
}

impl<'a> Side<'a> {
    /// A tensor whose values are taken as they are.
    pub fn of(desc: TensorDesc, data: &'a [f32]) -> Self {
        Self { desc, data, pad: 0, normal: None }
    }

    /// From sample `n` on.
    pub fn skip(self, n: usize) -> Self {
        Self { data: &self.data[n * self.desc.sample_elems()..], ..self }
    }

    /// Some channel blocks of sample `n`, counted from the first of them.
    fn planes(&self, n: usize, blocks: Range<usize>) -> impl Iterator<Item = (usize, &'a [f32])> {
        let (len, all) = (self.desc.shape.plane() * self.desc.block, self.desc.blocks());
        self.data[(n * all + blocks.start) * len..][..blocks.len() * len].chunks_exact(len).enumerate()
    }

    /// Transformed inputs of a run of tiles of `outputs`, of all channels.
    #[inline(always)]
    pub fn inputs<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        run: Run,
        outputs: &TensorDesc,
        order: Order,
        v: &mut [f32],
    ) {
        let image = ([self.desc.shape.h, self.desc.shape.w], self.pad);
        for (n, strip, at) in run.parts(outputs, order) {
            for (block, plane) in self.planes(n, 0..self.desc.blocks()) {
                let v = &mut v[at + block * order.block..];
                match self.normal {
                    Some(normal) => input_tiles::<S, A, B, M>(set, plane, image, strip, normal.of_block(set, block), v),
                    None => input_tiles::<S, A, B, M>(set, plane, image, strip, AsItIs, v),
                }
            }
        }
    }

    /// The same for gradients of outputs, of some channel blocks.
    #[inline(always)]
    pub fn gradients<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        (run, blocks): (Run, Range<usize>),
        order: Order,
        d: &mut [f32],
    ) {
        for (n, strip, at) in run.parts(&self.desc, order) {
            for (block, plane) in self.planes(n, blocks.clone()) {
                gradient_tiles::<S, A, B, M>(set, plane, strip, &mut d[at + block * order.block..]);
            }
        }
    }
}
