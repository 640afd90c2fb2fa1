//! A batch as batch normalisation walks through it: rows, each a channel block of one sample.

use std::ops::Range;

use net::Norm;

use crate::TensorDesc;
use super::channel::{Channel, lanes};
use super::rows::{self, Bits, NOTES, RELU, RESIDUAL};
use super::super::lanes::{LANES, Lanes, period};
use super::super::number::Number;
use super::super::threads::{Shared, Threads};

/// gamma, where the op has it, and beta.
pub type Affine<'a> = (Option<&'a [f32]>, &'a [f32]);

/// What a forward pass writes: y and, where ReLU stands behind a residual, what it lets through.
#[derive(Clone, Copy)]
pub struct Output<Y> {
    pub y: Shared<Y>,
    pub bits: Option<Shared<Bits>>,
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

    /// Where the row of one sample and channel block lies.
    pub fn row(&self, n: usize, block: usize) -> Range<usize> {
        let len = self.x.shape.plane() * self.x.block;
        let at = (n * self.x.blocks() + block) * len;
        at..at + len
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

    /// `f(block, samples of a thread)` for all channel blocks, the last one first: what was read last is what the caches still hold.
    pub fn each_block(&self, f: impl Fn(usize, Range<usize>) + Sync) {
        self.threads.each(self.x.n, |_, samples| {
            (0..self.x.blocks()).rev().for_each(|block| f(block, samples.clone()));
        });
    }

    /// Adds two sums for each channel of a block to those in `sums`, of which the first ones stand before all second ones:
    /// `f(sample, first sum's lanes, second sum's lanes)` adds those of a row.
    pub fn add(
        &self,
        block: usize,
        samples: Range<usize>,
        sums: &mut [f64],
        f: impl Fn(usize, &mut [Lanes], &mut [Lanes]),
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
        rows::words(self.x.shape.plane() * self.x.block)
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
        Output { y, bits }: Output<Y>,
    ) {
        let mode = self.mode() + NOTES * usize::from(bits.is_some());
        let (scale, shift) = (self.lanes(channels, |c| c.scale), self.lanes(channels, |c| c.shift));
        for n in samples.rev() {
            let row = self.row(n, block);
            let r = residual.get(row.clone()).unwrap_or(&[]);
            // SAFETY: every row is written by one thread, and the caller has borrowed `y`.
            let y = unsafe { y.part(row.clone()) };
            // SAFETY: as above.
            let bits = bits.as_ref().map_or(&mut [][..], |bits| unsafe { bits.part(self.bits(n, block)) });
            rows::normalise(mode, (&x[row], r), &scale, &shift, y, bits);
        }
    }
}
