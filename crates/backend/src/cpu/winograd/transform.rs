//! Transforms from images to tiles of A x B values: B^T d B of inputs, A y A^T of the output gradient. The matrices are
//! those of F(2, 3), F(2, 5) and F(4, 3).

use std::ops::Range;

use super::super::fusion::Constants;
use super::super::vector::{Grid, GridMut, Vectors, load};
use super::strip::{Order, Run, Strip};
use crate::TensorDesc;

/// A tensor in channel blocks that a pass reads.
#[derive(Clone, Copy)]
pub struct PassInput<'a> {
    pub desc: TensorDesc,
    pub data: &'a [f32],
    /// Rows and columns of zeros before each image. The first window starts at the first of these rows and columns.
    pub pad: usize,
    /// A norm to apply to each value when it is read.
    pub norm: Option<InputNorm<'a>>,
}

/// Transposes a matrix that is given as columns.
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

/// Stores the values of a transformed tile. The first value is at `at`, and values are `place` floats apart.
#[inline(always)]
fn scatter<S: Vectors, const A: usize, const B: usize>(
    set: S,
    grid: [[S::Lanes; B]; A],
    at: usize,
    place: usize,
    to: &mut [f32],
) {
    let mut to = GridMut::<S, A, B>::new(set, &mut to[at..], [B * place, place]);
    for (r, row) in grid.into_iter().enumerate() {
        for (c, lanes) in row.into_iter().enumerate() {
            to.put(r, c, lanes);
        }
    }
}

/// Loads R rows of C pixels from row `top` and column `left` on. Panics if they are not inside the plane.
#[inline(always)]
fn patch<S: Vectors, const R: usize, const C: usize>(
    set: S,
    plane: &[f32],
    w: usize,
    top: usize,
    left: usize,
) -> [[S::Lanes; R]; C] {
    let from = Grid::<S, R, C>::new(set, &plane[(top * w + left) * S::LANES..], [w * S::LANES, S::LANES]);
    let mut columns = [[set.zero(); R]; C];
    for (c, column) in columns.iter_mut().enumerate() {
        for (r, lanes) in column.iter_mut().enumerate() {
            *lanes = from.get(r, c);
        }
    }
    columns
}

/// Reads the pixels for a row of tiles. `above` points to the first row, and rows have `w` pixels. Rows from `rows[0]`
/// to `rows[1]` are inside the image. There are `pad` zeros before each row, and pixels outside the image are zero.
/// `map` is applied to each pixel.
#[derive(Clone, Copy)]
struct Pixels<P> {
    above: *const f32,
    w: usize,
    pad: usize,
    rows: [usize; 2],
    map: P,
}

impl<P> Pixels<P> {
    /// Returns B^T d of a column d of A pixels. `left` is the column's index plus `pad`. If `inner` is set, all pixels
    /// must be inside the image.
    #[inline(always)]
    fn column<S: Vectors, const A: usize>(self, set: S, left: usize, inner: bool) -> [S::Lanes; A]
    where
        P: InputMap<S>,
    {
        let Self { above, w, pad, rows, map } = self;
        let mut d = [set.zero(); A];
        if inner || left >= pad && left < w + pad {
            for (r, d) in d.iter_mut().enumerate() {
                if inner || r >= rows[0] && r < rows[1] {
                    // SAFETY: column and row are inside the image.
                    let value = unsafe { set.load(above.wrapping_add((r * w + left - pad) * S::LANES)) };
                    *d = map.apply(set, value);
                }
            }
        }
        input_line::<S, A, 2>(set, d)
    }

    /// Computes B^T d for the columns d of a tile, from column number `first` on.
    #[inline(always)]
    fn columns<S: Vectors, const A: usize, const B: usize>(
        self,
        set: S,
        left: usize,
        first: usize,
        inner: bool,
        columns: &mut [[S::Lanes; A]; B],
    ) where
        P: InputMap<S>,
    {
        for (c, column) in columns.iter_mut().enumerate().skip(first) {
            *column = self.column(set, left + c, inner);
        }
    }
}

/// Computes B^T d B for a strip of a channel block. The image has h rows and w columns, with `pad` zeros before them.
#[inline(always)]
fn input_tiles<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    plane: &[f32],
    ([h, w], pad): ([usize; 2], usize),
    s: Strip,
    map: impl InputMap<S>,
    v: &mut [f32],
) {
    let plane = plane[..h * w * S::LANES].as_ptr();
    // A tile shares all but M of its columns with the next tile. Only with A = 4 do the shared columns fit into the
    // registers, so that reusing them pays.
    let shared = if A == 4 { B - M } else { 0 };
    let mut i = 0;
    while i < s.count {
        let (top, mut left) = s.tile(i);
        let end = s.count.min(i + (s.w - left).div_ceil(M));
        let rows = [pad.saturating_sub(top), A.min(h + pad - top)];
        let above = plane.wrapping_add(top * w * S::LANES).wrapping_sub(pad * w * S::LANES);
        let pixels = Pixels { above, w, pad, rows, map };
        let mut columns = [[set.zero(); A]; B];
        for c in 0..shared {
            columns[c + M] = pixels.column(set, left + c, false);
        }
        while i < end {
            for c in 0..shared {
                columns[c] = columns[c + M];
            }
            // If the whole tile is inside the image, its loads need no conditions.
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

/// Computes A y A^T of the output gradient for a strip of a channel block.
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

impl<'a> PassInput<'a> {
    /// Creates an input without padding and without a norm.
    pub fn new(desc: TensorDesc, data: &'a [f32]) -> Self {
        Self { desc, data, pad: 0, norm: None }
    }

    /// Returns the input without the samples before `n`.
    pub fn skip(self, n: usize) -> Self {
        Self { data: &self.data[n * self.desc.sample_elems()..], ..self }
    }

    /// Returns some channel blocks of sample `n`, each with its number counted from the first of them.
    fn planes(&self, n: usize, blocks: Range<usize>) -> impl Iterator<Item = (usize, &'a [f32])> {
        let (len, all) = (self.desc.shape.plane() * self.desc.block, self.desc.blocks());
        self.data[(n * all + blocks.start) * len..][..blocks.len() * len].chunks_exact(len).enumerate()
    }

    /// Transforms the inputs in all channels for a run of tiles. `outputs` is the layout of the outputs, which defines
    /// the tiles.
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
                match self.norm {
                    Some(norm) => input_tiles::<S, A, B, M>(set, plane, image, strip, norm.for_block(set, block), v),
                    None => input_tiles::<S, A, B, M>(set, plane, image, strip, Unchanged, v),
                }
            }
        }
    }

    /// Transforms the output gradient in some channel blocks.
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

// The matrices, applied to a column or row. As in the literature, B is for inputs and A for outputs. The parameter A is
// the length of a line, and M its number of outputs. `filters` has the filters and their matrix G.

/// The points of F(4, 3) besides 0 and infinity are NEAR, FAR and their negatives. These points had the least rounding
/// error of all that were tried. F(2, 3) uses 0, 1, -1 and infinity. F(2, 5) also uses 2 and -2.
pub const NEAR: f32 = 0.75;
pub const FAR: f32 = 1.5;

/// Returns the side of the filters for transformed tiles with `a` lines.
pub const fn kernel(a: usize) -> usize {
    a - 1
}

/// Returns B^T d for a column or row.
#[inline(always)]
pub fn input_line<S: Vectors, const A: usize, const M: usize>(set: S, d: [S::Lanes; A]) -> [S::Lanes; A] {
    let mut t = [set.zero(); A];
    if M == 4 {
        let sum = set.splat(NEAR * NEAR + FAR * FAR);
        let product = set.splat(NEAR * NEAR * FAR * FAR);
        t[0] = set.mul_add(product, d[0], set.sub_mul(d[4], sum, d[2]));
        for (at, point, other) in [(1, NEAR, FAR), (3, FAR, NEAR)] {
            let (point, other) = (set.splat(point), set.splat(other * other));
            let (even, odd) = (set.sub_mul(d[4], other, d[2]), set.sub_mul(d[3], other, d[1]));
            t[at] = set.mul_add(point, odd, even);
            t[at + 1] = set.sub_mul(even, point, odd);
        }
        t[5] = set.mul_add(product, d[1], set.sub_mul(d[5], sum, d[3]));
    } else if A == 4 {
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

/// Returns A^T m for a column or row.
#[inline(always)]
pub fn output_line<S: Vectors, const A: usize, const M: usize>(set: S, m: [S::Lanes; A]) -> [S::Lanes; M] {
    let mut y = [set.zero(); M];
    let (sum, difference) = (set.add(m[1], m[2]), set.sub(m[1], m[2]));
    y[0] = set.add(m[0], sum);
    if A == 4 {
        y[1] = set.sub(difference, m[3]);
        return y;
    }
    let (sum2, difference2) = (set.add(m[3], m[4]), set.sub(m[3], m[4]));
    y[0] = set.add(y[0], sum2);
    if M == 4 {
        let (near2, far2) = (NEAR * NEAR, FAR * FAR);
        y[1] = set.mul_add(set.splat(NEAR), difference, set.scale(FAR, difference2));
        y[2] = set.mul_add(set.splat(near2), sum, set.scale(far2, sum2));
        let odd = set.mul_add(set.splat(FAR * far2), difference2, m[5]);
        y[3] = set.mul_add(set.splat(NEAR * near2), difference, odd);
    } else {
        let twice = set.add(difference2, difference2);
        y[1] = set.add(set.add(difference, twice), m[5]);
    }
    y
}

/// Returns A y for a column or row.
#[inline(always)]
pub fn gradient_line<S: Vectors, const A: usize, const M: usize>(set: S, y: [S::Lanes; M]) -> [S::Lanes; A] {
    let mut g = [set.zero(); A];
    g[0] = y[0];
    if M == 4 {
        for (at, point) in [(1, NEAR), (3, FAR)] {
            let square = set.splat(point * point);
            let even = set.mul_add(square, y[2], y[0]);
            let odd = set.mul_add(square, y[3], y[1]);
            g[at] = set.mul_add(set.splat(point), odd, even);
            g[at + 1] = set.sub_mul(even, set.splat(point), odd);
        }
        g[5] = y[3];
        return g;
    }
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

// Inputs that are the output of a batch norm. The convolution computes them from the norm's input, with the norm's
// formula.

/// A function that is applied to each value when it is read.
pub trait InputMap<S: Vectors>: Copy {
    fn apply(self, set: S, value: S::Lanes) -> S::Lanes;
}

/// An [`InputMap`] that returns the value unchanged.
#[derive(Clone, Copy)]
pub struct Unchanged;

impl<S: Vectors> InputMap<S> for Unchanged {
    #[inline(always)]
    fn apply(self, _: S, value: S::Lanes) -> S::Lanes {
        value
    }
}

/// The norm before the convolution: its constants for all channels, and whether ReLU follows.
#[derive(Clone, Copy)]
pub struct InputNorm<'a> {
    pub constants: &'a Constants,
    pub relu: bool,
}

/// The norm of a channel block: max(scale x + shift, least). `least` is 0 if ReLU follows, otherwise minus infinity.
#[derive(Clone, Copy)]
pub struct InputNormBlock<L> {
    scale: L,
    shift: L,
    least: L,
}

impl InputNorm<'_> {
    #[inline(always)]
    pub fn for_block<S: Vectors>(self, set: S, block: usize) -> InputNormBlock<S::Lanes> {
        let scale = load(set, &self.constants.scale, block * S::LANES);
        let shift = load(set, &self.constants.shift, block * S::LANES);
        InputNormBlock { scale, shift, least: set.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY }) }
    }
}

impl<L: Copy> InputNormBlock<L> {
    /// Returns the gradient where the norm's value, computed from `x`, passes ReLU, and 0 elsewhere.
    #[inline(always)]
    pub fn masked<S: Vectors<Lanes = L>>(self, set: S, x: L, gradient: L) -> L {
        set.unless_at_most(self.least, set.mul_add(x, self.scale, self.shift), gradient)
    }
}

impl<S: Vectors> InputMap<S> for InputNormBlock<S::Lanes> {
    #[inline(always)]
    fn apply(self, set: S, value: S::Lanes) -> S::Lanes {
        // `max` returns its second operand if either is NaN, so NaN stays.
        set.max(self.least, set.mul_add(value, self.scale, self.shift))
    }
}
