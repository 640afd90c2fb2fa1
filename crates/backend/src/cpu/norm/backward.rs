//! The backward pass of batch normalisation.

use std::ops::Range;

use super::batch::Batch;
use super::channel::{Channel, lanes};
use super::rows::{self, Bits, Constants, Row, SECOND, STORES, Slope};
use super::super::channel_sums::ChannelSums;
use super::super::number::Number;
use super::super::threads::Shared;

/// What it reads and writes.
pub struct Tensors<'a, X, Y> {
    pub x: &'a [X],
    /// What ReLU let through; read with a residual alone.
    pub bits: &'a [Bits],
    /// Empty without a second summand.
    pub second: &'a [Y],
    pub dy: Shared<Y>,
    /// Where dx has a place of its own and is wanted.
    pub dx: Option<Shared<X>>,
    /// Whether it takes the place of dy, whose numbers are of the same kind; not with a residual, whose gradient stays there.
    pub in_place: bool,
}

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
    pub fn sums(&self, sums: &mut ChannelSums) -> Vec<f64> {
        sums.of(self.batch.x.n, |samples, sums| {
            for block in 0..self.batch.x.blocks() {
                self.add(block, samples.clone(), &self.constants(block), sums);
            }
        })
    }

    /// dx from the sums over the whole batch.
    pub fn gradients(&self, sums: &[f64]) {
        self.batch.each_block(|block, samples| {
            self.gradient(block, samples, &self.constants(block), &self.slopes(block, sums));
        });
    }

    /// Both, channel block by channel block; gives the sums.
    pub fn by_blocks(&self, sums: &mut ChannelSums) -> Vec<f64> {
        sums.of(self.batch.x.blocks(), |blocks, sums| {
            for block in blocks {
                let constants = self.constants(block);
                self.add(block, 0..self.batch.x.n, &constants, sums);
                self.gradient(block, 0..self.batch.x.n, &constants, &self.slopes(block, sums));
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
    fn add(&self, block: usize, samples: Range<usize>, constants: &[Constants], sums: &mut [f64]) {
        self.batch.add(block, samples, sums, |n, s, sx| {
            // SAFETY: every row is one thread's, and `dy` is borrowed for the whole pass.
            let dy = unsafe { self.tensors.dy.part(self.batch.row(n, block)) };
            rows::reduce(self.mode(), &self.row(n, block, constants), dy, s, sx);
        });
    }

    /// dx of some samples of a block, the last one first.
    fn gradient(&self, block: usize, samples: Range<usize>, constants: &[Constants], slopes: &[Slope]) {
        for n in samples.rev() {
            let row = self.batch.row(n, block);
            // SAFETY: every row is one thread's, and `dy` is borrowed for the whole pass.
            let dy = unsafe { self.tensors.dy.part(row.clone()) };
            if self.tensors.in_place {
                rows::slope_in_place(self.mode(), slopes, &self.row(n, block, constants), dy);
            } else if let Some(dx) = self.tensors.dx {
                // SAFETY: as above.
                rows::slope(slopes, &self.tensors.x[row.clone()], dy, unsafe { dx.part(row) });
            }
        }
    }
}
