//! Transforms products back to images (A^T m A) and processes the outputs before they are written: bias, ReLU, the ReLU
//! mask of a batch norm, sums.

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
use super::transform::{InputNorm, InputNormBlock, PassInput, output_line, transpose};
use crate::{Arena, Pass, PlanRequest, TensorDesc};

/// A pass from x to y, or from dy to dx.
pub struct Convolution<'a> {
    pub from: PassInput<'a>,
    pub to: TensorDesc,
    pub filters: &'a [f32],
    pub strip: usize,
    pub finish: Finish<'a>,
}

/// The processing of outputs before they are written.
#[derive(Clone, Copy)]
pub struct Finish<'a> {
    /// The bias of every channel, including padding.
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
    /// True if the moments of all channels are summed.
    pub moments: bool,
    /// If set, the outputs are the gradient of a norm, and the other fields are not used.
    pub gradient: Option<NormGradient<'a>>,
}

/// The batch norm before this convolution. The norm's ReLU masks the gradient of the norm's output. The masked gradient
/// is called g.
#[derive(Clone, Copy)]
pub struct NormGradient<'a> {
    pub norm: InputNorm<'a>,
    /// The norm's input, in the layout of the gradient.
    pub x: &'a [f32],
}

impl Finish<'_> {
    /// Writes the outputs unchanged.
    pub const PLAIN: Self = Self { bias: None, relu: false, moments: false, gradient: None };

    /// Returns the processing for outputs without the samples before `first`. `to` is the layout of the outputs.
    pub fn skip(self, to: &TensorDesc, first: usize) -> Self {
        let gradient =
            self.gradient.map(|gradient| NormGradient { x: &gradient.x[first * to.sample_elems()..], ..gradient });
        Self { gradient, ..self }
    }
}

/// The memory that a thread writes.
pub struct Output<'a> {
    /// The images, with a row per sample.
    pub y: Matrix<'a, f32>,
    /// The moments of all channels, in the first row. See [`Finish::moments`].
    pub moments: Matrix<'a, Moments>,
    /// The sums of g for all channels in the first row, and of g (x - mean) in the second row. See
    /// [`Finish::gradient`].
    pub sums: Matrix<'a, f64>,
}

impl Output<'_> {
    #[inline(always)]
    pub fn reborrow(&mut self) -> Output<'_> {
        Output { y: self.y.reborrow(), moments: self.moments.reborrow(), sums: self.sums.reborrow() }
    }
}

/// Returns the lanes of a register.
#[inline(always)]
fn values<S: Vectors>(set: S, lanes: S::Lanes) -> [f32; MOST_LANES] {
    let mut values = [0.0; MOST_LANES];
    store(set, lanes, &mut values);
    values
}

/// Processes the outputs in a channel block of a sample.
pub trait Epilogue<S: Vectors> {
    /// The transform calls this first, with the first output row of the strip's first tile.
    fn begin(&mut self, _set: S, _row: &[S::Lanes]) {}

    /// Returns the value to write for an output. `column` is its column in the tile, `at` its offset in the plane.
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes;
}

/// Adds a bias and applies ReLU if requested.
#[derive(Clone, Copy)]
pub struct BiasEpilogue<L> {
    bias: L,
    relu: bool,
}

impl<L: Copy> BiasEpilogue<L> {
    /// Loads the bias of the channel block that begins with channel `first`.
    #[inline(always)]
    pub fn new<S: Vectors<Lanes = L>>(set: S, finish: &Finish<'_>, first: usize) -> Self {
        let bias = finish.bias.map_or(set.zero(), |bias| load(set, bias, first));
        Self { bias, relu: finish.relu }
    }
}

impl<S: Vectors> Epilogue<S> for BiasEpilogue<S::Lanes> {
    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, _: usize, _: usize) -> S::Lanes {
        let sum = set.add(output, self.bias);
        // `max` returns its second operand if either is NaN, so NaN stays.
        if self.relu { set.max(set.zero(), sum) } else { sum }
    }
}

/// A [`BiasEpilogue`] that also sums the moments of the written values. The offsets are from the mean of a tile's first
/// row. Each sum is split in two, so that additions do not wait for each other.
struct MomentsEpilogue<L> {
    with_bias: BiasEpilogue<L>,
    reference: L,
    offsets: [L; 2],
    squares: [L; 2],
}

impl<L: Copy> MomentsEpilogue<L> {
    fn new<S: Vectors<Lanes = L>>(set: S, with_bias: BiasEpilogue<L>) -> Self {
        let zero = set.zero();
        Self { with_bias, reference: zero, offsets: [zero; 2], squares: [zero; 2] }
    }

    /// Adds the moments of `n` outputs to the moments of their channels.
    #[inline(always)]
    fn add_to<S: Vectors<Lanes = L>>(&self, set: S, n: usize, moments: &mut [Moments]) {
        let reference = values(set, self.reference);
        let offsets = values(set, set.add(self.offsets[0], self.offsets[1]));
        let squares = values(set, set.add(self.squares[0], self.squares[1]));
        for (lane, moments) in moments.iter_mut().enumerate() {
            let (offsets, squares) = (f64::from(offsets[lane]), f64::from(squares[lane]));
            moments.add(&Moments { n: n as f64, reference: reference[lane], offsets, squares });
        }
    }
}

impl<S: Vectors> Epilogue<S> for MomentsEpilogue<S::Lanes> {
    #[inline(always)]
    fn begin(&mut self, set: S, row: &[S::Lanes]) {
        let mut sum = set.zero();
        for output in row {
            sum = set.add(sum, self.with_bias.value(set, *output, 0, 0));
        }
        self.reference = set.scale(1.0 / row.len() as f32, sum);
    }

    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes {
        let value = self.with_bias.value(set, output, column, at);
        let (offset, i) = (set.sub(value, self.reference), column % 2);
        self.offsets[i] = set.add(self.offsets[i], offset);
        self.squares[i] = set.mul_add(offset, offset, self.squares[i]);
        value
    }
}

/// Masks the gradient with a norm's ReLU and sums it. Each sum is split in two, as in [`MomentsEpilogue`].
struct NormGradientEpilogue<'a, L> {
    norm: InputNormBlock<L>,
    /// The norm's input in this channel block of this sample.
    x: &'a [f32],
    mean: L,
    g: [L; 2],
    gx: [L; 2],
}

impl<S: Vectors> Epilogue<S> for NormGradientEpilogue<'_, S::Lanes> {
    #[inline(always)]
    fn value(&mut self, set: S, output: S::Lanes, column: usize, at: usize) -> S::Lanes {
        let (x, i) = (load(set, self.x, at), column % 2);
        let g = self.norm.masked(set, x, output);
        self.g[i] = set.add(self.g[i], g);
        self.gx[i] = set.mul_add(g, set.sub(x, self.mean), self.gx[i]);
        g
    }
}

/// Returns A^T m A of a tile. Its A x B products are `place` floats apart.
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

/// Loads a tile's two rows of M outputs, which [`folded`](super::folded) has already transformed.
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

/// Writes the pixels of a tile that starts at row `top` and column `left` to a plane of [h, w] pixels. Leaves out
/// pixels outside the plane. Returns the number of pixels written.
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

/// The outputs of a strip in a channel block of a sample, and the plane that receives them.
struct Block<'a, const A: usize, const B: usize, const M: usize> {
    strip: Strip,
    m: &'a [f32],
    plane: &'a mut [f32],
}

impl<const A: usize, const B: usize, const M: usize> Block<'_, A, B, M> {
    /// Writes the outputs and returns their number.
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

    /// Writes the outputs with bias and ReLU and adds their moments. `first` is the block's first channel.
    #[inline(always)]
    fn finish<S: Vectors>(self, set: S, finish: Finish<'_>, first: usize, moments: &mut Matrix<'_, Moments>) {
        let mut with_bias = BiasEpilogue::new(set, &finish, first);
        if !finish.moments {
            self.write(set, &mut with_bias);
            return;
        }
        let mut summed = MomentsEpilogue::new(set, with_bias);
        let n = self.write(set, &mut summed);
        summed.add_to(set, n, moments.row(0, first..first + S::LANES));
    }

    /// Masks the outputs, which are the gradient of a norm, with the norm's ReLU. Writes them and adds their sums. `x`
    /// is the norm's input in this block, `first` the block's first channel.
    #[inline(always)]
    fn gradient<S: Vectors>(
        self,
        set: S,
        gradient: NormGradient<'_>,
        x: &[f32],
        first: usize,
        all_sums: &mut Matrix<'_, f64>,
    ) {
        let norm = gradient.norm.for_block(set, first / S::LANES);
        let (mean, zero) = (load(set, &gradient.norm.constants.mean, first), set.zero());
        let mut masked = NormGradientEpilogue { norm, x, mean, g: [zero; 2], gx: [zero; 2] };
        self.write(set, &mut masked);
        for (row, sums) in [masked.g, masked.gx].into_iter().enumerate() {
            let lanes = values(set, set.add(sums[0], sums[1]));
            let to = all_sums.row(row, first..first + S::LANES);
            to.iter_mut().zip(lanes).for_each(|(to, sum)| *to += f64::from(sum));
        }
    }
}

/// Transforms the products of a run of tiles, in some channel blocks, to pixels. A tile has A x B products. If A is 0,
/// the products are already outputs, see [`folded`](super::folded).
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

/// The bias and the ReLU of a convolution. Both are optional.
pub struct BiasRelu {
    threads: Threads,
    y: TensorDesc,
    pub relu: Relu,
    /// The bias, padded with zeros. Empty if there is no bias.
    bias: Vec<f32>,
}

impl BiasRelu {
    pub fn new(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv, y: TensorDesc) -> Self {
        let bias = vec![0.0; if op.bias { padded(op.out_channels) } else { 0 }];
        Self { threads: cpu.threads, y, relu: Relu::new(op.relu, r.name, r.output_fusion.filter(|_| cpu.fuses)), bias }
    }

    /// Returns the memory formats of weight and bias. `taps` is the number of weights per filter and input channel.
    pub fn formats(&self, inputs: usize, taps: usize) -> Vec<Format> {
        let bias = (!self.bias.is_empty()).then_some(Format::Plain(self.y.shape.c));
        std::iter::once(Format::Plain(self.y.shape.c * inputs * taps)).chain(bias).collect()
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.bias[..])
    }

    /// Copies the bias from the parameters of a pass.
    pub fn take(&mut self, pass: &Pass<'_, Cpu>) {
        if !self.bias.is_empty() {
            let channels = self.y.shape.c;
            self.bias[..channels].copy_from_slice(&pass.params.get(pass.slots[1])[..channels]);
        }
    }

    /// Returns the bias that [`Self::take`] has copied.
    pub fn bias(&self) -> Option<&[f32]> {
        (!self.bias.is_empty()).then_some(&self.bias)
    }

    /// Zeroes dy where ReLU's output is 0.
    pub fn mask(&self, dy: &mut AlignedBuf, y: &AlignedBuf) {
        self.relu.mask(self.threads, self.y.elems(), dy, y);
    }

    pub fn gradient(&self, pass: &Pass<'_, Cpu>, dy: &[f32], gradients: &mut Arena<Cpu>) {
        if !self.bias.is_empty() {
            let db = &mut gradients.get_mut(pass.slots[1])[..self.y.shape.c];
            by_block!(self.y.block, sum(self.threads, &self.y, dy, db));
        }
    }
}

/// Sums dy over images and pixels for each channel.
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
