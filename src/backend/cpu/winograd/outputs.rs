//! From the grid back to images, by A^T m A, and what is done with an output before it is written.

use std::ops::Range;

use super::super::moments::Moments;
use super::super::threads::Shared;
use super::lines::output_line;
use super::strip::{Order, Run, Strip};
use super::transform::{load, transpose};
use super::vector::{MOST_LANES, Vectors};
use crate::backend::TensorDesc;

/// What follows the products.
#[derive(Clone, Copy)]
pub struct Finish<'a> {
    /// For every channel, padding included.
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
    /// Where the moments of all channels are added: each thread's, behind each other; of those that divide the channels, the first one's.
    pub moments: Option<Shared<Moments>>,
}

impl Finish<'_> {
    /// Of one thread, for an output of so many channels, padding included.
    pub fn of_thread(self, thread: usize, channels: usize) -> Self {
        // SAFETY: each thread has a part of its own, borrowed as long as the whole.
        let own = |all: Shared<Moments>| Shared::new(unsafe { all.part(thread * channels..(thread + 1) * channels) });
        Self { moments: self.moments.map(own), ..self }
    }
}

/// What is done with the outputs of a channel block of one sample.
trait Epilogue<S: Vectors> {
    /// Comes before all others, with the first row of them.
    fn begin(&mut self, _set: S, _row: &[S::Lanes]) {}

    /// What is written for an output in this column of its tile.
    fn value(&mut self, set: S, output: S::Lanes, column: usize) -> S::Lanes;
}

/// A bias, then ReLU if requested.
#[derive(Clone, Copy)]
struct Affine<L> {
    bias: L,
    relu: bool,
}

impl<S: Vectors> Epilogue<S> for Affine<S::Lanes> {
    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, _: usize) -> S::Lanes {
        let sum = set.add(output, self.bias);
        // a NaN in the second operand stays
        if self.relu { set.max(set.zero(), sum) } else { sum }
    }
}

/// The same, and the moments of what is written: offsets from the mean of the first row of a tile, in two sums each, so that neither waits for the other.
struct Summed<L> {
    affine: Affine<L>,
    near: L,
    offsets: [L; 2],
    squares: [L; 2],
}

impl<L: Copy> Summed<L> {
    fn new<S: Vectors<Lanes = L>>(set: S, affine: Affine<L>) -> Self {
        let zero = set.zero();
        Self { affine, near: zero, offsets: [zero; 2], squares: [zero; 2] }
    }

    /// Adds the moments of `n` outputs to those of their channels.
    #[inline(always)]
    fn add_to<S: Vectors<Lanes = L>>(&self, set: S, n: usize, moments: &mut [Moments]) {
        let [offsets, squares] = [self.offsets, self.squares].map(|[a, b]| set.add(a, b));
        let [near, offsets, squares] = [self.near, offsets, squares].map(|lanes| {
            let mut values = [0.0; MOST_LANES];
            // SAFETY: no set has more lanes.
            unsafe { set.store(lanes, values.as_mut_ptr()) };
            values
        });
        for (lane, moments) in moments.iter_mut().enumerate() {
            let (offsets, squares) = (f64::from(offsets[lane]), f64::from(squares[lane]));
            moments.add(&Moments { n: n as f64, near: near[lane], offsets, squares });
        }
    }
}

impl<S: Vectors> Epilogue<S> for Summed<S::Lanes> {
    #[inline(always)]
    fn begin(&mut self, set: S, row: &[S::Lanes]) {
        let sum = row.iter().fold(set.zero(), |sum, output| set.add(sum, self.affine.value(set, *output, 0)));
        self.near = set.scale(1.0 / row.len() as f32, sum);
    }

    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, column: usize) -> S::Lanes {
        let value = self.affine.value(set, output, column);
        let (offset, at) = (set.sub(value, self.near), column % 2);
        self.offsets[at] = set.add(self.offsets[at], offset);
        self.squares[at] = set.mul_add(offset, offset, self.squares[at]);
        value
    }
}

/// A^T m A of one tile, whose places are `place` floats apart.
#[inline(always)]
fn output_tile<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    m: &[f32],
    place: usize,
) -> [[S::Lanes; M]; 2] {
    let from = m[..(A * B - 1) * place + S::LANES].as_ptr();
    let mut columns = [[set.zero(); 2]; B];
    for (c, column) in columns.iter_mut().enumerate() {
        let mut cells = [set.zero(); A];
        for (r, lanes) in cells.iter_mut().enumerate() {
            // SAFETY: the last place ends where the slice taken above does.
            *lanes = unsafe { set.load(from.add((B * r + c) * place)) };
        }
        *column = output_line::<S, A, 2>(set, cells);
    }
    let [upper, lower] = transpose(columns);
    [output_line::<S, B, M>(set, upper), output_line::<S, B, M>(set, lower)]
}

/// Two rows of M outputs that are ready, side by side.
#[inline(always)]
fn folded_tile<S: Vectors, const M: usize>(set: S, m: &[f32]) -> [[S::Lanes; M]; 2] {
    let mut y = [[set.zero(); M]; 2];
    for (r, row) in y.iter_mut().enumerate() {
        for (c, lanes) in row.iter_mut().enumerate() {
            *lanes = load(set, m, (M * r + c) * S::LANES);
        }
    }
    y
}

/// One tile's outputs into a channel block's plane; those beyond the image are left out. Gives their number.
#[inline(always)]
fn write_tile<S: Vectors, const M: usize>(
    set: S,
    y: [[S::Lanes; M]; 2],
    (s, top, left): (Strip, usize, usize),
    epilogue: &mut impl Epilogue<S>,
    plane: &mut [f32],
) -> usize {
    let [rows, columns] = [(s.h - top).min(2), (s.w - left).min(M)];
    for (r, row) in y.into_iter().enumerate().take(rows) {
        for (c, lanes) in row.into_iter().enumerate().take(columns) {
            let to = &mut plane[((top + r) * s.w + left + c) * S::LANES..][..S::LANES];
            // SAFETY: the slice taken above.
            unsafe { set.store(epilogue.value(set, lanes, c), to.as_mut_ptr()) };
        }
    }
    rows * columns
}

/// The outputs of a strip into a channel block's plane; gives their number.
#[inline(always)]
fn write<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    m: &[f32],
    strip: Strip,
    epilogue: &mut impl Epilogue<S>,
    plane: &mut [f32],
) -> usize {
    let mut written = 0;
    for (i, top, left) in strip.tiles() {
        let m = &m[i * strip.order.tile..];
        let y = match A {
            0 => folded_tile::<S, M>(set, m),
            _ => output_tile::<S, A, B, M>(set, m, strip.order.place),
        };
        if i == 0 {
            epilogue.begin(set, &y[0]);
        }
        written += write_tile(set, y, (strip, top, left), epilogue, plane);
    }
    written
}

/// Products of a run of tiles, in some channel blocks, back to the pixels of its samples: from an A x B grid, or, if A is 0, from the
/// outputs that a tile's products were folded to.
#[inline(always)]
pub fn outputs<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    desc: &TensorDesc,
    m: &[f32],
    (run, blocks): (Run, Range<usize>),
    order: Order,
    finish: Finish<'_>,
    y: Shared<f32>,
) {
    let (plane, sample) = (desc.shape.plane() * S::LANES, desc.sample_elems());
    for (n, strip, at) in run.parts(desc, order) {
        for block in blocks.clone() {
            let first = n * sample + block * plane;
            // SAFETY: the caller writes these blocks of these samples alone, and has borrowed `y`.
            let plane = unsafe { y.part(first..first + plane) };
            let m = &m[at + (block - blocks.start) * order.block..];
            let bias = match finish.bias {
                Some(bias) => load(set, bias, block * S::LANES),
                None => set.zero(),
            };
            let mut affine = Affine { bias, relu: finish.relu };
            let Some(moments) = finish.moments else {
                write::<S, A, B, M>(set, m, strip, &mut affine, plane);
                continue;
            };
            let mut summed = Summed::new(set, affine);
            let n = write::<S, A, B, M>(set, m, strip, &mut summed, plane);
            // SAFETY: the caller alone has these channels of its moments.
            summed.add_to(set, n, unsafe { moments.part(block * S::LANES..(block + 1) * S::LANES) });
        }
    }
}
