//! From the grid back to images, by A^T m A, and what is done with an output before it is written: bias, ReLU, normalisation, sums.

use std::ops::Range;

use net::Conv;

use super::super::buf::AlignedBuf;
use super::super::device::Cpu;
use super::super::divide::Matrix;
use super::super::fusion::Relu;
use super::super::lanes::by_block;
use super::super::layout::Format;
use super::super::moments::Moments;
use super::super::threads::Threads;
use super::super::vector::{Grid, MOST_LANES, Vectors, load, store};
use super::strip::{Order, Run, Strip, padded};
use super::transform::output_line;
use super::transform::transpose;
use super::transform::{Normalised, NormalisedBlock, Side};
use crate::{Arena, Pass, PlanRequest, TensorDesc};

/// A pass from one side to the other: x to y, or dy to dx.
pub struct Convolution<'a> {
    pub from: Side<'a>,
    pub to: TensorDesc,
    pub filters: &'a [f32],
    pub strip: usize,
    pub finish: Finish<'a>,
}

/// What follows the products.
#[derive(Clone, Copy)]
pub struct Finish<'a> {
    /// For every channel, padding included.
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
    /// Whether the moments of all channels are summed.
    pub moments: bool,
    /// In place of all of these, where the outputs are the gradient of a norm.
    pub gradient: Option<NormGradient<'a>>,
}

/// The gradient of a norm that the convolution computes: it becomes that behind ReLU, g.
#[derive(Clone, Copy)]
pub struct NormGradient<'a> {
    pub normal: Normalised<'a>,
    /// What the norm reads, in the layout of the gradient.
    pub x: &'a [f32],
}

impl Finish<'_> {
    /// As the outputs are, if nothing else is asked for.
    pub const PLAIN: Self = Self { bias: None, relu: false, moments: false, gradient: None };

    /// From sample `first` of the outputs on, which have the layout `to`.
    pub fn skip(self, to: &TensorDesc, first: usize) -> Self {
        let gradient =
            self.gradient.map(|gradient| NormGradient { x: &gradient.x[first * to.sample_elems()..], ..gradient });
        Self { gradient, ..self }
    }
}

/// What a thread writes.
pub struct Output<'a> {
    /// Images, a row for each sample.
    pub y: Matrix<'a, f32>,
    /// The moments of all channels, in the first row; see [`Finish::moments`].
    pub moments: Matrix<'a, Moments>,
    /// The sums of g of all channels, then, in the second row, those of g (x - mean); see [`Finish::gradient`].
    pub sums: Matrix<'a, f64>,
}

impl Output<'_> {
    #[inline(always)]
    pub fn reborrow(&mut self) -> Output<'_> {
        Output { y: self.y.reborrow(), moments: self.moments.reborrow(), sums: self.sums.reborrow() }
    }
}

/// The lanes of a register.
#[inline(always)]
fn values<S: Vectors>(set: S, lanes: S::Lanes) -> [f32; MOST_LANES] {
    let mut values = [0.0; MOST_LANES];
    store(set, lanes, &mut values);
    values
}

/// What is done with the outputs of a channel block of one sample.
pub trait Epilogue<S: Vectors> {
    /// Comes before all others, with the first row of them.
    fn begin(&mut self, _set: S, _row: &[S::Lanes]) {}

    /// What is written for an output in this column of its tile, `at` floats behind the first of its plane.
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes;
}

/// A bias, then ReLU if requested.
#[derive(Clone, Copy)]
pub struct Affine<L> {
    bias: L,
    relu: bool,
}

impl<L: Copy> Affine<L> {
    /// Of the channels from `first` on.
    #[inline(always)]
    pub fn new<S: Vectors<Lanes = L>>(set: S, finish: &Finish<'_>, first: usize) -> Self {
        let bias = finish.bias.map_or(set.zero(), |bias| load(set, bias, first));
        Self { bias, relu: finish.relu }
    }
}

impl<S: Vectors> Epilogue<S> for Affine<S::Lanes> {
    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, _: usize, _: usize) -> S::Lanes {
        let sum = set.add(output, self.bias);
        // a NaN in the second operand stays
        if self.relu { set.max(set.zero(), sum) } else { sum }
    }
}

/// The same, and the moments of what is written: offsets from the mean of the first row of a tile, in two sums each, so that neither waits
/// for the other.
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
        let near = values(set, self.near);
        let offsets = values(set, set.add(self.offsets[0], self.offsets[1]));
        let squares = values(set, set.add(self.squares[0], self.squares[1]));
        for (lane, moments) in moments.iter_mut().enumerate() {
            let (offsets, squares) = (f64::from(offsets[lane]), f64::from(squares[lane]));
            moments.add(&Moments { n: n as f64, near: near[lane], offsets, squares });
        }
    }
}

impl<S: Vectors> Epilogue<S> for Summed<S::Lanes> {
    #[inline(always)]
    fn begin(&mut self, set: S, row: &[S::Lanes]) {
        let mut sum = set.zero();
        for output in row {
            sum = set.add(sum, self.affine.value(set, *output, 0, 0));
        }
        self.near = set.scale(1.0 / row.len() as f32, sum);
    }

    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes {
        let value = self.affine.value(set, output, column, at);
        let (offset, i) = (set.sub(value, self.near), column % 2);
        self.offsets[i] = set.add(self.offsets[i], offset);
        self.squares[i] = set.mul_add(offset, offset, self.squares[i]);
        value
    }
}

/// The gradient behind a norm's ReLU, and its sums, in two each.
struct Masked<'a, L> {
    normal: NormalisedBlock<L>,
    /// What the norm reads, of this channel block of this sample.
    x: &'a [f32],
    mean: L,
    g: [L; 2],
    gx: [L; 2],
}

impl<S: Vectors> Epilogue<S> for Masked<'_, S::Lanes> {
    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes {
        let (x, i) = (load(set, self.x, at), column % 2);
        let g = self.normal.masked(set, x, output);
        self.g[i] = set.add(self.g[i], g);
        self.gx[i] = set.mul_add(g, set.sub(x, self.mean), self.gx[i]);
        g
    }
}

/// A^T m A of one tile, whose places are `place` floats apart.
#[inline(always)]
fn output_tile<S: Vectors, const A: usize, const B: usize, const M: usize>(
    set: S,
    m: &[f32],
    place: usize,
) -> [[S::Lanes; M]; 2] {
    let from = Grid::<S, A, B>::new(set, m, [B * place, place]);
    let mut columns = [[set.zero(); 2]; B];
    for (c, column) in columns.iter_mut().enumerate() {
        let mut cells = [set.zero(); A];
        for (r, lanes) in cells.iter_mut().enumerate() {
            *lanes = from.get(r, c);
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

/// A tile's pixels, from row `top` and column `left` on, into a channel block's plane of [h, w] pixels; those beyond it are left out. Gives
/// their number.
#[inline(always)]
pub fn write_tile<S: Vectors, const R: usize, const C: usize>(
    set: S,
    y: [[S::Lanes; C]; R],
    ([h, w], top, left): ([usize; 2], usize, usize),
    epilogue: &mut impl Epilogue<S>,
    plane: &mut [f32],
) -> usize {
    let [rows, columns] = [(h - top).min(R), (w - left).min(C)];
    for (r, row) in y.into_iter().enumerate().take(rows) {
        for (c, lanes) in row.into_iter().enumerate().take(columns) {
            let at = ((top + r) * w + left + c) * S::LANES;
            store(set, epilogue.value(set, lanes, c, at), &mut plane[at..at + S::LANES]);
        }
    }
    rows * columns
}

/// The outputs of a strip in a channel block of one sample, and where they go.
struct Block<'a, const A: usize, const B: usize, const M: usize> {
    strip: Strip,
    m: &'a [f32],
    plane: &'a mut [f32],
}

impl<const A: usize, const B: usize, const M: usize> Block<'_, A, B, M> {
    /// Writes them; gives their number.
    #[inline(always)]
    fn write<S: Vectors>(self, set: S, epilogue: &mut impl Epilogue<S>) -> usize {
        let Self { strip, m, plane } = self;
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
            written += write_tile(set, y, ([strip.h, strip.w], top, left), epilogue, plane);
        }
        written
    }

    /// Writes them with bias and ReLU, and adds their moments; they are those of channels from `first` on.
    #[inline(always)]
    fn finish<S: Vectors>(self, set: S, finish: Finish<'_>, first: usize, moments: &mut Matrix<'_, Moments>) {
        let mut affine = Affine::new(set, &finish, first);
        if !finish.moments {
            self.write(set, &mut affine);
            return;
        }
        let mut summed = Summed::new(set, affine);
        let n = self.write(set, &mut summed);
        summed.add_to(set, n, moments.row(0, first..first + S::LANES));
    }

    /// Writes them as the gradient behind a norm's ReLU, and adds its sums; the norm reads `x` there.
    #[inline(always)]
    fn gradient<S: Vectors>(
        self,
        set: S,
        gradient: NormGradient<'_>,
        x: &[f32],
        first: usize,
        all_sums: &mut Matrix<'_, f64>,
    ) {
        let normal = gradient.normal.of_block(set, first / S::LANES);
        let (mean, zero) = (load(set, &gradient.normal.constants.mean, first), set.zero());
        let mut masked = Masked { normal, x, mean, g: [zero; 2], gx: [zero; 2] };
        self.write(set, &mut masked);
        for (row, sums) in [masked.g, masked.gx].into_iter().enumerate() {
            let lanes = values(set, set.add(sums[0], sums[1]));
            let to = all_sums.row(row, first..first + S::LANES);
            to.iter_mut().zip(lanes).for_each(|(to, sum)| *to += f64::from(sum));
        }
    }
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
    mut output: Output<'_>,
) {
    let (len, sample) = (desc.shape.plane() * S::LANES, desc.sample_elems());
    for (n, strip, at) in run.parts(desc, order) {
        for block in blocks.clone() {
            let plane = output.y.row(n, block * len..(block + 1) * len);
            let m = &m[at + (block - blocks.start) * order.block..];
            let (outputs, first) = (Block::<A, B, M> { strip, m, plane }, block * S::LANES);
            match finish.gradient {
                Some(gradient) => {
                    let x = &gradient.x[n * sample + block * len..][..len];
                    outputs.gradient(set, gradient, x, first, &mut output.sums);
                }
                None => outputs.finish(set, finish, first, &mut output.moments),
            }
        }
    }
}

/// A bias or none, and ReLU or none, of a convolution with this output.
pub struct BiasRelu {
    threads: Threads,
    y: TensorDesc,
    pub relu: Relu,
    /// Padded with zeros; empty without one.
    bias: Vec<f32>,
}

impl BiasRelu {
    pub fn new(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv, y: TensorDesc) -> Self {
        let bias = vec![0.0; if op.bias { padded(op.out_channels) } else { 0 }];
        let reader = r.behind.filter(|_| cpu.fuses).map(|fusion| &fusion.relu);
        Self { threads: cpu.threads, y, relu: Relu::new(op.relu, r.name, reader), bias }
    }

    /// Returns the memory formats of weight and bias. `taps` is the number of weights per filter and input channel.
    pub fn formats(&self, inputs: usize, taps: usize) -> Vec<Format> {
        let bias = (!self.bias.is_empty()).then_some(Format::Plain(self.y.shape.c));
        std::iter::once(Format::Plain(self.y.shape.c * inputs * taps)).chain(bias).collect()
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.bias[..])
    }

    /// Takes the bias of a pass.
    pub fn take(&mut self, pass: &Pass<'_, Cpu>) {
        if !self.bias.is_empty() {
            let channels = self.y.shape.c;
            self.bias[..channels].copy_from_slice(&pass.params.get(pass.slots[1])[..channels]);
        }
    }

    /// The bias that was taken.
    pub fn bias(&self) -> Option<&[f32]> {
        (!self.bias.is_empty()).then_some(&self.bias)
    }

    /// Leaves of dy what ReLU let through.
    pub fn mask(&self, dy: &mut AlignedBuf, y: &AlignedBuf) {
        self.relu.mask(self.threads, self.y.elems(), dy, y);
    }

    /// The bias's gradient.
    pub fn gradient(&self, pass: &Pass<'_, Cpu>, dy: &[f32], gradients: &mut Arena<Cpu>) {
        if !self.bias.is_empty() {
            let db = &mut gradients.get_mut(pass.slots[1])[..self.y.shape.c];
            by_block!(self.y.block, sum(self.threads, &self.y, dy, db));
        }
    }
}

/// Sum of dy over images and pixels, by channel.
fn sum<const BLOCK: usize>(threads: Threads, desc: &TensorDesc, dy: &[f32], db: &mut [f32]) {
    let (row, blocks, samples) = (desc.shape.plane() * BLOCK, desc.blocks(), desc.n);
    threads.split(db, BLOCK, |first, db| {
        for (block, db) in (first..).zip(db.chunks_mut(BLOCK)) {
            let mut total = [0f64; BLOCK];
            for n in 0..samples {
                let mut sum = [0f32; BLOCK];
                for lanes in dy[(n * blocks + block) * row..][..row].as_chunks::<BLOCK>().0 {
                    sum.iter_mut().zip(lanes).for_each(|(s, d)| *s += d);
                }
                total.iter_mut().zip(sum).for_each(|(t, s)| *t += f64::from(s));
            }
            db.iter_mut().zip(total).for_each(|(d, t)| *d = t as f32);
        }
    });
}
