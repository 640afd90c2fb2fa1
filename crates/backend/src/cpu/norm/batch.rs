//! The passes of batch normalisation over a batch: which rows it walks through, each a channel block of one sample, what it knows of a
//! channel, and the backward pass.

use std::ops::Range;

use net::Norm;

use super::super::divide::{Divided, Matrix};
use super::super::lanes::{LANES, Lanes, period};
use super::super::moments::ChannelSums;
use super::super::number::Number;
use super::super::threads::Threads;
use super::rows::{self, Bits, Constants, NOTES, RELU, RESIDUAL, Row, SECOND, STORES, Slope};
use crate::TensorDesc;

/// gamma, where the op has it, and beta.
pub type Affine<'a> = (Option<&'a [f32]>, &'a [f32]);

/// What a thread writes in a forward pass, with a row of the matrix for each sample: y and, where ReLU stands behind a residual, what it
/// lets through.
pub struct Output<'a, Y> {
    pub y: Matrix<'a, Y>,
    pub bits: Option<Matrix<'a, Bits>>,
}

/// A batch of known sizes, which lies as (N, blocks, plane, block).
pub struct Batch {
    pub threads: Threads,
    pub op: Norm,
    pub x: TensorDesc,
}

impl Batch {
    /// Channels, padding included.
    pub fn channels(&self) -> usize {
        self.x.blocks() * self.x.block
    }

    /// Values of a channel.
    pub fn count(&self) -> f64 {
        (self.x.n * self.x.shape.plane()) as f64
    }

    /// The channels of a block, padding included.
    pub fn block(&self, block: usize) -> Range<usize> {
        block * self.x.block..(block + 1) * self.x.block
    }

    /// Those of them that are no padding.
    pub fn real(&self, block: usize) -> Range<usize> {
        let Range { start, end } = self.block(block);
        start..end.min(self.x.shape.c)
    }

    /// Elements of the row of one sample and channel block.
    pub fn row_len(&self) -> usize {
        self.x.shape.plane() * self.x.block
    }

    /// Where the row of one sample and channel block lies.
    pub fn row(&self, n: usize, block: usize) -> Range<usize> {
        let at = (n * self.x.blocks() + block) * self.row_len();
        at..at + self.row_len()
    }

    /// Divides a slice with `len` elements for each row among threads that take samples.
    pub fn by_samples<'a, T>(&self, slice: &'a mut [T], len: usize) -> Divided<'a, T> {
        Divided::by_rows(slice, self.x.blocks() * len, 1)
    }

    /// Divides a slice with `len` elements for each row among threads that take channel blocks.
    pub fn by_blocks_of<'a, T>(&self, slice: &'a mut [T], len: usize) -> Divided<'a, T> {
        Divided::by_columns(slice, self.x.blocks() * len, len)
    }

    pub fn mode(&self) -> usize {
        RELU * usize::from(self.op.relu) + RESIDUAL * usize::from(self.op.residual)
    }

    /// Groups of lanes that make a block.
    pub fn groups(&self) -> usize {
        period(self.x.block)
    }

    /// One value for each lane of a block's rows.
    pub fn lanes<T>(&self, block: &[T], to: impl Fn(&T) -> f32 + Copy) -> Vec<Lanes> {
        (0..self.groups()).map(|group| lanes(block, group, to)).collect()
    }

    /// Whether threads take whole channel blocks, whose sums are then complete at once, so that the second reading of a block finds it in
    /// the caches as far as these hold it; else each takes samples. Only where that keeps them busy, or as busy as samples would.
    pub fn by_blocks(&self) -> bool {
        let (blocks, n) = (self.x.blocks(), self.x.n);
        let slots = |items: usize| items.next_multiple_of(self.threads.0);
        self.threads.are_busy(blocks) || slots(blocks) * n <= slots(n) * blocks
    }

    /// Calls `f` with all channel blocks, the last one first: what was read last is what the caches still hold.
    pub fn each_block(&self, f: impl FnMut(usize)) {
        (0..self.x.blocks()).rev().for_each(f);
    }

    /// Adds two sums for each channel of a block to those in `sums`, of which the first ones stand before all second ones:
    /// `f(sample, first sum's lanes, second sum's lanes)` adds those of a row.
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
                // the lanes of all groups are whole blocks
                for sums in sums.as_flattened().chunks_exact(self.x.block) {
                    to.iter_mut().zip(sums).for_each(|(to, sum)| *to += f64::from(*sum));
                }
            }
        }
    }

    /// Each of a block's channels' mean over the first sample.
    pub fn near<X: Number>(&self, x: &[X], block: usize) -> Vec<f32> {
        let mut sums = vec![0f64; self.x.block];
        for pixel in x[self.row(0, block)].chunks_exact(self.x.block) {
            sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += f64::from(x.get()));
        }
        sums.iter().map(|sum| (sum / self.x.shape.plane() as f64) as f32).collect()
    }

    /// Statistics of a block's channels from the sums of its moments.
    pub fn set_statistics(&self, block: usize, near: &[f32], sums: &[f64], channels: &mut [Channel]) {
        let (s, q) = sums.split_at(self.channels());
        for ((channel, near), i) in channels.iter_mut().zip(near).zip(self.block(block)) {
            channel.set_statistics(*near, [s[i], q[i]], self.count());
        }
    }

    /// Scale and shift of a block's channels; `of(channel, what is known of it)` gives a mean and the inverse of a standard deviation.
    pub fn set_scale(
        &self,
        block: usize,
        (gamma, beta): Affine<'_>,
        channels: &mut [Channel],
        of: impl Fn(usize, &Channel) -> [f64; 2],
    ) {
        for (i, channel) in self.real(block).zip(channels) {
            let statistics = of(i, channel);
            channel.set_scale(gamma.map(|gamma| gamma[i]), beta[i], statistics);
        }
    }

    /// Adds the sums of (x - near) and its square over some samples of a block.
    pub fn add_moments<X: Number>(&self, x: &[X], block: usize, samples: Range<usize>, near: &[f32], sums: &mut [f64]) {
        let near = self.lanes(near, |v| *v);
        self.add(block, samples, sums, |n, s, q| rows::moments(&x[self.row(n, block)], &near, s, q));
    }

    /// Words of the bits of one row.
    pub fn words(&self) -> usize {
        rows::words(self.row_len())
    }

    /// Where the bits of the row of one sample and channel block lie.
    pub fn bits(&self, n: usize, block: usize) -> Range<usize> {
        let at = (n * self.x.blocks() + block) * self.words();
        at..at + self.words()
    }

    /// y of some samples of a block, the last one first, by scale and shift of its channels.
    pub fn normalise<X: Number, Y: Number>(
        &self,
        (x, residual): (&[X], &[Y]),
        block: usize,
        samples: Range<usize>,
        channels: &[Channel],
        Output { y, bits }: &mut Output<'_, Y>,
    ) {
        let mode = self.mode() + NOTES * usize::from(bits.is_some());
        let (scale, shift) = (self.lanes(channels, |c| c.scale), self.lanes(channels, |c| c.shift));
        for n in samples.rev() {
            let row = self.row(n, block);
            let r = residual.get(row.clone()).unwrap_or(&[]);
            let bits = bits.as_mut().map_or(&mut [][..], |bits| bits.row(n, of(block, self.words())));
            rows::normalise(mode, (&x[row], r), &scale, &shift, y.row(n, of(block, self.row_len())), bits);
        }
    }
}

/// Where a channel block lies in a sample with `len` elements for each block.
fn of(block: usize, len: usize) -> Range<usize> {
    block * len..(block + 1) * len
}

/// Statistics of a channel's last batch, and what follows from them; all zero in padding.
#[derive(Clone, Copy, Default)]
pub struct Channel {
    pub mean: f64,
    /// Sum of squared offsets from the mean.
    pub m2: f64,
    /// gamma / sqrt(var + eps), and beta - mean * that.
    pub scale: f32,
    pub shift: f32,
}

impl Channel {
    /// From the sums of (x - near) and its square over `n` values.
    pub fn set_statistics(&mut self, near: f32, [s, q]: [f64; 2], n: f64) {
        let offset = s / n;
        self.mean = f64::from(near) + offset;
        self.m2 = (q - n * offset * offset).max(0.0);
    }

    /// For a mean and 1 / standard deviation.
    pub fn set_scale(&mut self, gamma: Option<f32>, beta: f32, [mean, inverse_std]: [f64; 2]) {
        let scale = gamma.map_or(1.0, f64::from) * inverse_std;
        self.scale = scale as f32;
        self.shift = (f64::from(beta) - mean * scale) as f32;
    }

    /// 1 / sqrt(var + eps), of a batch of `n` values a channel.
    pub fn inverse_std(&self, n: f64, eps: f32) -> f64 {
        1.0 / (self.m2 / n + f64::from(eps)).sqrt()
    }
}

/// Of group `group` of the lanes of a row, one value for each lane; a block's channels come again and again.
pub fn lanes<T>(block: &[T], group: usize, to: impl Fn(&T) -> f32) -> Lanes {
    std::array::from_fn(|lane| to(&block[(group * LANES + lane) % block.len()]))
}

/// What it reads.
pub struct Tensors<'a, X, Y> {
    pub x: &'a [X],
    /// What ReLU let through; read with a residual alone.
    pub bits: &'a [Bits],
    /// Empty without a second summand.
    pub second: &'a [Y],
    /// Whether dx takes the place of dy, whose numbers are of the same kind; not with a residual, whose gradient stays there.
    pub in_place: bool,
}

/// The gradients that it writes: slices of a whole batch, or what a thread has of them.
pub struct InputGradients<DY, DX> {
    pub dy: DY,
    /// Where it has a place of its own and is wanted.
    pub dx: Option<DX>,
}

type Own<'a, X, Y> = InputGradients<Matrix<'a, Y>, Matrix<'a, X>>;

/// The pass over a batch whose channels know their statistics, over `n` values each.
pub struct Backward<'a, X, Y> {
    pub batch: &'a Batch,
    pub channels: &'a [Channel],
    pub n: f64,
    /// Whether statistics do not depend on x, so that dx is g times the scale.
    pub frozen: bool,
    /// Whether dy is the gradient behind ReLU already.
    pub masked: bool,
    pub tensors: Tensors<'a, X, Y>,
}

impl<X: Number, Y: Number> Backward<'_, X, Y> {
    /// The sums of g, the gradient behind ReLU, of all channels, then those of g (x - mean); each thread makes its samples' part.
    pub fn sums(&self, dy: &mut [Y], sums: &mut ChannelSums) -> Vec<f64> {
        let dy = self.batch.by_samples(dy, self.batch.row_len());
        sums.of(self.batch.x.n, dy, |samples, sums, mut dy| {
            for block in 0..self.batch.x.blocks() {
                self.add(block, samples.clone(), &self.constants(block), &mut dy, sums);
            }
        })
    }

    /// dx from the sums over the whole batch.
    pub fn gradients(&self, InputGradients { dy, dx }: InputGradients<&mut [Y], &mut [X]>, sums: &[f64]) {
        let (batch, len) = (self.batch, self.batch.row_len());
        let parts = (batch.by_samples(dy, len), dx.map(|dx| batch.by_samples(dx, len)));
        batch.threads.divide(batch.x.n, parts, |samples, (dy, dx)| {
            let mut own = InputGradients { dy, dx };
            batch.each_block(|block| {
                self.gradient(block, samples.clone(), &self.constants(block), &self.slopes(block, sums), &mut own);
            });
        });
    }

    /// Both, channel block by channel block; gives the sums.
    pub fn by_blocks(&self, InputGradients { dy, dx }: InputGradients<&mut [Y], &mut [X]>, sums: &mut ChannelSums) -> Vec<f64> {
        let (batch, len) = (self.batch, self.batch.row_len());
        let parts = (batch.by_blocks_of(dy, len), dx.map(|dx| batch.by_blocks_of(dx, len)));
        sums.of(batch.x.blocks(), parts, |blocks, sums, (dy, dx)| {
            let mut own = InputGradients { dy, dx };
            for block in blocks {
                let constants = self.constants(block);
                self.add(block, 0..batch.x.n, &constants, &mut own.dy, sums);
                self.gradient(block, 0..batch.x.n, &constants, &self.slopes(block, sums), &mut own);
            }
        })
    }

    fn mode(&self) -> usize {
        let mode = if self.masked { 0 } else { self.batch.mode() };
        let second = !self.tensors.second.is_empty();
        let stores = !self.tensors.in_place && !self.batch.op.residual && !second;
        mode + SECOND * usize::from(second) + STORES * usize::from(stores)
    }

    /// Mean, scale and shift of a block's lanes.
    fn constants(&self, block: usize) -> Vec<Constants> {
        let channels = &self.channels[self.batch.block(block)];
        let of = |group| Constants {
            mean: lanes(channels, group, |c| c.mean as f32),
            scale: lanes(channels, group, |c| c.scale),
            shift: lanes(channels, group, |c| c.shift),
        };
        (0..self.batch.groups()).map(of).collect()
    }

    /// dx = scale (g - S(g)/n - (x - mean) inverse^2 S(g (x - mean))/n), as a g + b x + c, of a block's lanes.
    fn slopes(&self, block: usize, sums: &[f64]) -> Vec<Slope> {
        let (s, sx) = sums.split_at(self.batch.channels());
        let channels = &self.channels[self.batch.block(block)];
        let mut bc = vec![[0.0; 2]; channels.len()];
        for ((i, channel), bc) in self.batch.real(block).zip(channels).zip(&mut bc).filter(|_| !self.frozen) {
            let scale = f64::from(channel.scale);
            let b = -scale * channel.inverse_std(self.n, self.batch.op.eps).powi(2) * sx[i] / self.n;
            *bc = [b, -scale * s[i] / self.n - b * channel.mean];
        }
        let of = |group| Slope {
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

    /// Adds both sums over some samples of a block.
    fn add(
        &self,
        block: usize,
        samples: Range<usize>,
        constants: &[Constants],
        dy: &mut Matrix<'_, Y>,
        sums: &mut [f64],
    ) {
        self.batch.add(block, samples, sums, |n, s, sx| {
            let dy = dy.row(n, of(block, self.batch.row_len()));
            rows::reduce(self.mode(), &self.row(n, block, constants), dy, s, sx);
        });
    }

    /// dx of some samples of a block, the last one first.
    fn gradient(
        &self,
        block: usize,
        samples: Range<usize>,
        constants: &[Constants],
        slopes: &[Slope],
        own: &mut Own<'_, X, Y>,
    ) {
        let columns = of(block, self.batch.row_len());
        for n in samples.rev() {
            let dy = own.dy.row(n, columns.clone());
            if self.tensors.in_place {
                rows::slope_in_place(self.mode(), slopes, &self.row(n, block, constants), dy);
            } else if let Some(dx) = &mut own.dx {
                rows::slope(slopes, &self.tensors.x[self.batch.row(n, block)], dy, dx.row(n, columns.clone()));
            }
        }
    }
}
