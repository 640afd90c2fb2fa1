//! Batch norm for a whole batch: it selects the rows, computes the constants of each channel, and runs the backward
//! pass. A row is a channel block of a sample.

use std::ops::Range;

use net::Norm;

use super::super::divide::{DividedMatrix, Matrix};
use super::super::lanes::{LANES, Lanes, period};
use super::super::moments::ChannelSums;
use super::super::number::Number;
use super::super::threads::Threads;
use super::rows::{self, Bits, Constants, DxCoefficients, RELU, RESIDUAL, Row, SECOND, STORES_BITS, STORES_GRADIENT};
use crate::TensorDesc;

/// gamma, if the operation has it, and beta.
pub type Affine<'a> = (Option<&'a [f32]>, &'a [f32]);

/// The part of the output that a thread writes. The matrices have a row per sample. `bits` tells which values ReLU
/// passed, and is used only if ReLU follows a residual.
pub struct Output<'a, Y> {
    pub y: Matrix<'a, Y>,
    pub bits: Option<Matrix<'a, Bits>>,
}

/// A batch-norm layer planned for a fixed batch size. The layout is (N, blocks, plane, block).
pub struct Batch {
    pub threads: Threads,
    pub op: Norm,
    pub x: TensorDesc,
}

impl Batch {
    /// Returns the number of channels, including padding.
    pub fn channels(&self) -> usize {
        self.x.blocks() * self.x.block
    }

    /// Returns the number of values per channel.
    pub fn count(&self) -> f64 {
        (self.x.n * self.x.shape.plane()) as f64
    }

    /// Returns the channels of a block, including padding.
    pub fn block(&self, block: usize) -> Range<usize> {
        block * self.x.block..(block + 1) * self.x.block
    }

    /// Returns the channels of a block without padding.
    pub fn real(&self, block: usize) -> Range<usize> {
        let Range { start, end } = self.block(block);
        start..end.min(self.x.shape.c)
    }

    pub fn row_len(&self) -> usize {
        self.x.shape.plane() * self.x.block
    }

    /// Returns the elements of the row for a sample and channel block.
    pub fn row(&self, n: usize, block: usize) -> Range<usize> {
        let at = (n * self.x.blocks() + block) * self.row_len();
        at..at + self.row_len()
    }

    /// Divides a slice with `len` elements per row by samples.
    pub fn by_samples<'a, T>(&self, slice: &'a mut [T], len: usize) -> DividedMatrix<'a, T> {
        DividedMatrix::by_rows(slice, self.x.blocks() * len, 1)
    }

    /// Divides a slice with `len` elements per row by channel blocks.
    pub fn by_blocks_of<'a, T>(&self, slice: &'a mut [T], len: usize) -> DividedMatrix<'a, T> {
        DividedMatrix::by_columns(slice, self.x.blocks() * len, len)
    }

    pub fn mode(&self) -> usize {
        RELU * usize::from(self.op.relu) + RESIDUAL * usize::from(self.op.residual)
    }

    /// Returns the number of lane groups after which the channels of a row repeat.
    pub fn groups(&self) -> usize {
        period(self.x.block)
    }

    /// Returns a value for each lane of a block's rows.
    pub fn lanes<T>(&self, block: &[T], to: impl Fn(&T) -> f32 + Copy) -> Vec<Lanes> {
        (0..self.groups()).map(|group| lanes(block, group, to)).collect()
    }

    /// Returns true if threads divide the channel blocks, false if they divide the samples. With blocks, a thread has
    /// the complete sums of a block immediately, and its second reading of the block finds data in the cache. This
    /// requires enough blocks to keep the threads busy, or at least as busy as samples would.
    pub fn by_blocks(&self) -> bool {
        let (blocks, n) = (self.x.blocks(), self.x.n);
        let slots = |items: usize| items.next_multiple_of(self.threads.0);
        self.threads.are_busy(blocks) || slots(blocks) * n <= slots(n) * blocks
    }

    /// Calls `f` for all channel blocks in reverse order, because the cache still holds the blocks that were read last.
    pub fn each_block(&self, f: impl FnMut(usize)) {
        (0..self.x.blocks()).rev().for_each(f);
    }

    /// Computes two sums for each channel in a block and adds them to `sums`, which has the first sums for all
    /// channels, then the second sums. `f(sample, lanes of the first sum, lanes of the second sum)` adds a row.
    pub fn add(
        &self,
        block: usize,
        samples: Range<usize>,
        sums: &mut [f64],
        mut f: impl FnMut(usize, &mut [Lanes], &mut [Lanes]),
    ) {
        let (first, second) = sums.split_at_mut(self.channels());
        let (first, second) = (&mut first[self.block(block)], &mut second[self.block(block)]);
        let (mut s, mut q) = (vec![[0.0; LANES]; self.groups()], vec![[0.0; LANES]; self.groups()]);
        for n in samples {
            s.fill([0.0; LANES]);
            q.fill([0.0; LANES]);
            f(n, &mut s, &mut q);
            for (sums, to) in [(&s, &mut *first), (&q, &mut *second)] {
                // The lanes of all groups together are a multiple of the block.
                for sums in sums.as_flattened().chunks_exact(self.x.block) {
                    to.iter_mut().zip(sums).for_each(|(to, sum)| *to += f64::from(*sum));
                }
            }
        }
    }

    /// Returns the mean over the first sample for each channel in a block.
    pub fn reference<X: Number>(&self, x: &[X], block: usize) -> Vec<f32> {
        let mut sums = vec![0f64; self.x.block];
        for pixel in x[self.row(0, block)].chunks_exact(self.x.block) {
            sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += f64::from(x.to_f32()));
        }
        sums.iter().map(|sum| (sum / self.x.shape.plane() as f64) as f32).collect()
    }

    /// Computes the statistics of a block's channels from the sums of (x - reference) and (x - reference)^2.
    pub fn set_statistics(&self, block: usize, reference: &[f32], sums: &[f64], channels: &mut [Channel]) {
        let (s, q) = sums.split_at(self.channels());
        for ((channel, reference), i) in channels.iter_mut().zip(reference).zip(self.block(block)) {
            channel.set_statistics(*reference, [s[i], q[i]], self.count());
        }
    }

    /// Computes scale and shift of a block's channels. `statistics(index, channel)` returns a mean and 1 / standard
    /// deviation.
    pub fn set_scale(
        &self,
        block: usize,
        (gamma, beta): Affine<'_>,
        channels: &mut [Channel],
        statistics: impl Fn(usize, &Channel) -> [f64; 2],
    ) {
        for (i, channel) in self.real(block).zip(channels) {
            channel.set_scale(gamma.map(|gamma| gamma[i]), beta[i], statistics(i, channel));
        }
    }

    /// Adds the sums of (x - reference) and (x - reference)^2 over some samples of a block.
    pub fn add_moments<X: Number>(
        &self,
        x: &[X],
        block: usize,
        samples: Range<usize>,
        reference: &[f32],
        sums: &mut [f64],
    ) {
        let reference = self.lanes(reference, |v| *v);
        self.add(block, samples, sums, |n, s, q| rows::moments(&x[self.row(n, block)], &reference, s, q));
    }

    /// Returns the number of words for the bits of a row.
    pub fn words(&self) -> usize {
        rows::words(self.row_len())
    }

    /// Returns the words with the bits of the row for a sample and channel block.
    pub fn bits(&self, n: usize, block: usize) -> Range<usize> {
        let at = (n * self.x.blocks() + block) * self.words();
        at..at + self.words()
    }

    /// Computes y for `samples` of a channel block, last sample first, from the scale and shift of the block's
    /// channels.
    pub fn normalise<X: Number, Y: Number>(
        &self,
        (x, residual): (&[X], &[Y]),
        block: usize,
        samples: Range<usize>,
        channels: &[Channel],
        Output { y, bits }: &mut Output<'_, Y>,
    ) {
        let mode = self.mode() + STORES_BITS * usize::from(bits.is_some());
        let (scale, shift) = (self.lanes(channels, |c| c.scale), self.lanes(channels, |c| c.shift));
        for n in samples.rev() {
            let row = self.row(n, block);
            let r = residual.get(row.clone()).unwrap_or(&[]);
            let bits = bits.as_mut().map_or(&mut [][..], |bits| bits.row(n, block_range(block, self.words())));
            rows::normalise(mode, (&x[row], r), &scale, &shift, y.row(n, block_range(block, self.row_len())), bits);
        }
    }
}

/// Returns the elements of a channel block within a sample that has `len` elements per block.
fn block_range(block: usize, len: usize) -> Range<usize> {
    block * len..(block + 1) * len
}

/// Statistics of a channel in the last batch, and the constants computed from them. All are zero for padding channels.
#[derive(Clone, Copy, Default)]
pub struct Channel {
    pub mean: f64,
    /// Sum of squared offsets from the mean.
    pub m2: f64,
    /// gamma / sqrt(var + eps). The shift is beta - mean * scale.
    pub scale: f32,
    pub shift: f32,
}

impl Channel {
    /// Sets mean and m2. `s` and `q` are the sums of (x - reference) and (x - reference)^2 over `n` values.
    pub fn set_statistics(&mut self, reference: f32, [s, q]: [f64; 2], n: f64) {
        let offset = s / n;
        self.mean = f64::from(reference) + offset;
        self.m2 = (q - n * offset * offset).max(0.0);
    }

    pub fn set_scale(&mut self, gamma: Option<f32>, beta: f32, [mean, inverse_std]: [f64; 2]) {
        let scale = gamma.map_or(1.0, f64::from) * inverse_std;
        self.scale = scale as f32;
        self.shift = (f64::from(beta) - mean * scale) as f32;
    }

    /// Returns 1 / sqrt(var + eps) for `n` values per channel.
    pub fn inverse_std(&self, n: f64, eps: f32) -> f64 {
        1.0 / (self.m2 / n + f64::from(eps)).sqrt()
    }
}

/// Returns the values for the lanes of a group in a row. The channels of a block repeat along the row.
pub fn lanes<T>(block: &[T], group: usize, to: impl Fn(&T) -> f32) -> Lanes {
    std::array::from_fn(|lane| to(&block[(group * LANES + lane) % block.len()]))
}

/// The tensors that the backward pass reads.
pub struct Tensors<'a, X, Y> {
    pub x: &'a [X],
    /// The bits of the values that ReLU passed. Used only with a residual.
    pub bits: &'a [Bits],
    /// A second gradient of y to add, or empty.
    pub second: &'a [Y],
    /// True if dx overwrites dy. This requires the same type and no residual, because dy is also the gradient of the
    /// residual.
    pub in_place: bool,
}

/// The gradients that the backward pass writes: slices of a whole batch, or a thread's parts.
pub struct InputGradients<DY, DX> {
    pub dy: DY,
    /// `None` if dx overwrites dy or is not needed.
    pub dx: Option<DX>,
}

type ThreadGradients<'a, X, Y> = InputGradients<Matrix<'a, Y>, Matrix<'a, X>>;

/// The backward pass of a batch. The statistics of the channels are computed over `n` values each.
pub struct Backward<'a, X, Y> {
    pub batch: &'a Batch,
    pub channels: &'a [Channel],
    pub n: f64,
    /// True if the statistics do not depend on x. Then dx is g times the scale.
    pub frozen: bool,
    /// True if ReLU's mask has already been applied to dy.
    pub masked: bool,
    pub tensors: Tensors<'a, X, Y>,
}

impl<X: Number, Y: Number> Backward<'_, X, Y> {
    /// Returns the sums of g for all channels, then the sums of g (x - mean). g is dy after ReLU's mask. The threads
    /// divide the samples.
    pub fn sums(&self, dy: &mut [Y], sums: &mut ChannelSums) -> Vec<f64> {
        let dy = self.batch.by_samples(dy, self.batch.row_len());
        sums.compute(self.batch.x.n, dy, |samples, sums, mut dy| {
            for block in 0..self.batch.x.blocks() {
                self.add(block, samples.clone(), &self.constants(block), &mut dy, sums);
            }
        })
    }

    /// Computes dx from the sums over the whole batch.
    pub fn gradients(&self, InputGradients { dy, dx }: InputGradients<&mut [Y], &mut [X]>, sums: &[f64]) {
        let (batch, len) = (self.batch, self.batch.row_len());
        let parts = (batch.by_samples(dy, len), dx.map(|dx| batch.by_samples(dx, len)));
        batch.threads.divide(batch.x.n, parts, |samples, (dy, dx)| {
            let mut own = InputGradients { dy, dx };
            batch.each_block(|block| {
                self.gradient(
                    block,
                    samples.clone(),
                    &self.constants(block),
                    &self.coefficients(block, sums),
                    &mut own,
                );
            });
        });
    }

    /// Computes the sums and then dx, one channel block at a time, so that dx finds the block's data in the cache.
    /// Returns the sums.
    pub fn by_blocks(
        &self,
        InputGradients { dy, dx }: InputGradients<&mut [Y], &mut [X]>,
        sums: &mut ChannelSums,
    ) -> Vec<f64> {
        let (batch, len) = (self.batch, self.batch.row_len());
        let parts = (batch.by_blocks_of(dy, len), dx.map(|dx| batch.by_blocks_of(dx, len)));
        sums.compute(batch.x.blocks(), parts, |blocks, sums, (dy, dx)| {
            let mut own = InputGradients { dy, dx };
            for block in blocks {
                let constants = self.constants(block);
                self.add(block, 0..batch.x.n, &constants, &mut own.dy, sums);
                self.gradient(block, 0..batch.x.n, &constants, &self.coefficients(block, sums), &mut own);
            }
        })
    }

    fn mode(&self) -> usize {
        let mode = if self.masked { 0 } else { self.batch.mode() };
        let second = !self.tensors.second.is_empty();
        let stores = !self.tensors.in_place && !self.batch.op.residual && !second;
        mode + SECOND * usize::from(second) + STORES_GRADIENT * usize::from(stores)
    }

    /// Returns mean, scale and shift for the lanes of a block.
    fn constants(&self, block: usize) -> Vec<Constants> {
        let channels = &self.channels[self.batch.block(block)];
        let of = |group| Constants {
            mean: lanes(channels, group, |c| c.mean as f32),
            scale: lanes(channels, group, |c| c.scale),
            shift: lanes(channels, group, |c| c.shift),
        };
        (0..self.batch.groups()).map(of).collect()
    }

    /// Returns the coefficients of dx = a g + b x + c for the lanes of a block. With S the sum over the n values of a
    /// channel, dx = scale (g - S(g)/n - (x - mean) inverse^2 S(g (x - mean))/n), where inverse is 1 / sqrt(var + eps).
    /// With frozen statistics, dx = scale g.
    fn coefficients(&self, block: usize, sums: &[f64]) -> Vec<DxCoefficients> {
        let (s, sx) = sums.split_at(self.batch.channels());
        let channels = &self.channels[self.batch.block(block)];
        let mut bc = vec![[0.0; 2]; channels.len()];
        for ((i, channel), bc) in self.batch.real(block).zip(channels).zip(&mut bc).filter(|_| !self.frozen) {
            let scale = f64::from(channel.scale);
            let b = -scale * channel.inverse_std(self.n, self.batch.op.eps).powi(2) * sx[i] / self.n;
            *bc = [b, -scale * s[i] / self.n - b * channel.mean];
        }
        let of = |group| DxCoefficients {
            a: lanes(channels, group, |c| c.scale),
            b: lanes(&bc, group, |bc| bc[0] as f32),
            c: lanes(&bc, group, |bc| bc[1] as f32),
        };
        (0..self.batch.groups()).map(of).collect()
    }

    fn row<'a>(&'a self, n: usize, block: usize, constants: &'a [Constants]) -> Row<'a, X, Y> {
        let row = self.batch.row(n, block);
        let second = self.tensors.second.get(row.clone()).unwrap_or(&[]);
        let bits = self.tensors.bits.get(self.batch.bits(n, block)).unwrap_or(&[]);
        Row { x: &self.tensors.x[row], bits, second, constants }
    }

    /// Adds the sums of g and g (x - mean) over some samples of a block.
    fn add(
        &self,
        block: usize,
        samples: Range<usize>,
        constants: &[Constants],
        dy: &mut Matrix<'_, Y>,
        sums: &mut [f64],
    ) {
        self.batch.add(block, samples, sums, |n, s, sx| {
            let dy = dy.row(n, block_range(block, self.batch.row_len()));
            rows::reduce(self.mode(), &self.row(n, block, constants), dy, s, sx);
        });
    }

    /// Computes dx for some samples of a block, in reverse order.
    fn gradient(
        &self,
        block: usize,
        samples: Range<usize>,
        constants: &[Constants],
        coefficients: &[DxCoefficients],
        own: &mut ThreadGradients<'_, X, Y>,
    ) {
        let columns = block_range(block, self.batch.row_len());
        for n in samples.rev() {
            let dy = own.dy.row(n, columns.clone());
            if self.tensors.in_place {
                rows::input_gradient_in_place(self.mode(), coefficients, &self.row(n, block, constants), dy);
            } else if let Some(dx) = &mut own.dx {
                rows::input_gradient(
                    coefficients,
                    &self.tensors.x[self.batch.row(n, block)],
                    dy,
                    dx.row(n, columns.clone()),
                );
            }
        }
    }
}
