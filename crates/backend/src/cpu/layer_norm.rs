//! Layer normalisation over the channels of each position. These channels are in different blocks, so the loops process
//! a tile of positions at a time, which stays in the cache between passes. Within a tile, numbers that belong to a
//! position are repeated for each channel in a block.

use std::ops::Range;

use base::simd;
use net::LayerNorm;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::lanes::{LANES, Lanes, add_lanes, lanes};
use super::layout::Format;
use super::moments::ChannelSums;
use super::threads::Threads;
use crate::memory::store;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Number of elements that a tile has in each channel block.
const TILE: usize = 512;

/// A number for each element of a tile.
type Tile = [f32; TILE];

/// A layer norm planned for a fixed batch size, with the statistics of its last batch.
struct Plan {
    threads: Threads,
    op: LayerNorm,
    x: TensorDesc,
    /// Mean and 1 / standard deviation for each position of each sample.
    statistics: Vec<[f32; 2]>,
    sums: ChannelSums,
}

pub(super) fn plan(cpu: &Cpu, op: &LayerNorm, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    let statistics = vec![[0.0; 2]; x.n * x.shape.plane()];
    let sums = ChannelSums::new(cpu.threads, 2 * x.blocks() * x.block);
    Ok(Box::new(Plan { threads: cpu.threads, op: *op, x, statistics, sums }))
}

simd! {
    fn add_offsets(x: &[f32], mean: &Tile, sums: &mut Tile) {
        x.iter().zip(mean).zip(sums).for_each(|((x, mean), sum)| *sum += x - mean);
    }
}

simd! {
    fn add_squares(x: &[f32], mean: &Tile, sums: &mut Tile) {
        for ((x, mean), sum) in x.iter().zip(mean).zip(sums) {
            let d = x - mean;
            *sum = d.mul_add(d, *sum);
        }
    }
}

/// The statistics for each element of a tile, and the weights of a block's channels.
struct TileConstants<'a> {
    mean: &'a Tile,
    inverse: &'a Tile,
    weight: Lanes,
}

simd! {
    fn normalise(t: &TileConstants<'_>, bias: &Lanes, x: &[f32], y: &mut [f32]) {
        for (i, (x, y)) in x.chunks(LANES).zip(y.chunks_mut(LANES)).enumerate() {
            let (mean, inverse) = (&t.mean[i * LANES..][..LANES], &t.inverse[i * LANES..][..LANES]);
            for (lane, (x, y)) in x.iter().zip(y).enumerate() {
                *y = ((x - mean[lane]) * inverse[lane]).mul_add(t.weight[lane], bias[lane]);
            }
        }
    }
}

/// The sums of the backward pass. For each element of a tile: the gradient times weight (`gradient`), and its product
/// with the normalised value (`product`). For each channel: the gradient times the normalised value, and the gradient.
struct Sums {
    gradient: Tile,
    product: Tile,
    channels: [Lanes; 2],
}

simd! {
    fn reduce(t: &TileConstants<'_>, x: &[f32], dy: &[f32], sums: &mut Sums) {
        for (i, (x, dy)) in x.chunks(LANES).zip(dy.chunks(LANES)).enumerate() {
            let (mean, inverse) = (&t.mean[i * LANES..][..LANES], &t.inverse[i * LANES..][..LANES]);
            let (gradient, product) = (&mut sums.gradient[i * LANES..][..LANES], &mut sums.product[i * LANES..][..LANES]);
            for (lane, (x, dy)) in x.iter().zip(dy).enumerate() {
                let (hat, weighted) = ((x - mean[lane]) * inverse[lane], dy * t.weight[lane]);
                gradient[lane] += weighted;
                product[lane] = weighted.mul_add(hat, product[lane]);
                sums.channels[0][lane] = dy.mul_add(hat, sums.channels[0][lane]);
                sums.channels[1][lane] += dy;
            }
        }
    }
}

simd! {
    /// Overwrites dy with dx. `gradient` and `product` are the means of the weighted gradient and of its product with
    /// the normalised value.
    fn input_gradient(t: &TileConstants<'_>, gradient: &Tile, product: &Tile, x: &[f32], dy: &mut [f32]) {
        for (i, (x, dy)) in x.chunks(LANES).zip(dy.chunks_mut(LANES)).enumerate() {
            let (mean, inverse) = (&t.mean[i * LANES..][..LANES], &t.inverse[i * LANES..][..LANES]);
            let (gradient, product) = (&gradient[i * LANES..][..LANES], &product[i * LANES..][..LANES]);
            for (lane, (x, dy)) in x.iter().zip(dy).enumerate() {
                let hat = (x - mean[lane]) * inverse[lane];
                let rest = (-hat).mul_add(product[lane], -gradient[lane]);
                *dy = inverse[lane] * dy.mul_add(t.weight[lane], rest);
            }
        }
    }
}

/// A tile: some positions of a sample.
struct TilePositions {
    /// First element in the first block.
    first: usize,
    /// Number of elements in each block.
    len: usize,
    positions: Range<usize>,
}

impl Plan {
    fn tiles(&self) -> impl Iterator<Item = TilePositions> + use<> {
        let (b, plane) = (self.x.block, self.x.shape.plane());
        (0..plane).step_by(TILE / b).map(move |p| {
            let positions = p..plane.min(p + TILE / b);
            TilePositions { first: p * b, len: positions.len() * b, positions }
        })
    }

    /// Returns the elements of a tile in each channel block, as ranges of a sample.
    fn blocks(&self, tile: &TilePositions) -> impl Iterator<Item = Range<usize>> + use<> {
        let (row, first, len) = (self.x.shape.plane() * self.x.block, tile.first, tile.len);
        (0..self.x.blocks()).map(move |block| first + block * row..first + block * row + len)
    }

    /// Returns the mean over the channels for each position, from the sums of a tile.
    fn means<'a>(&'a self, sums: &'a Tile, tile: &TilePositions) -> impl Iterator<Item = f64> + 'a {
        let sum = |elements: &[f32]| elements.iter().map(|s| f64::from(*s)).sum::<f64>();
        sums[..tile.len].chunks_exact(self.x.block).map(move |elements| sum(elements) / self.x.shape.c as f64)
    }

    /// Repeats the value of each position for all its elements.
    fn spread(&self, values: impl Iterator<Item = f64>) -> Tile {
        let mut tile = [0.0; TILE];
        tile.chunks_exact_mut(self.x.block).zip(values).for_each(|(to, value)| to.fill(value as f32));
        tile
    }

    /// Returns the tile for use with a block. If the block has padding channels, they are set to zero in a copy.
    fn for_block<'a>(&self, tile: &'a Tile, block: usize, copy: &'a mut Tile) -> &'a Tile {
        let used = self.x.shape.c % self.x.block;
        if used == 0 || block + 1 < self.x.blocks() {
            return tile;
        }
        *copy = *tile;
        copy.chunks_exact_mut(self.x.block).for_each(|position| position[used..].fill(0.0));
        copy
    }

    /// Computes mean and 1 / standard deviation for each position of a tile.
    fn measure(&self, x: &[f32], tile: &TilePositions, to: &mut [[f32; 2]]) {
        let (mut sums, mut squares, mut copy) = ([0.0; TILE], [0.0; TILE], [0.0; TILE]);
        // The sums are over differences from the first channel's value. It is close to the other values, so the sums
        // lose less accuracy.
        let reference = self.spread(x[tile.first..][..tile.len].iter().step_by(self.x.block).map(|x| f64::from(*x)));
        for (block, elements) in self.blocks(tile).enumerate() {
            add_offsets(&x[elements], self.for_block(&reference, block, &mut copy), &mut sums);
        }
        let offsets = self.means(&sums, tile).zip(reference.iter().step_by(self.x.block));
        let means: Vec<f64> = offsets.map(|(offset, reference)| f64::from(*reference) + offset).collect();
        let mean = self.spread(means.iter().copied());
        for (block, elements) in self.blocks(tile).enumerate() {
            add_squares(&x[elements], self.for_block(&mean, block, &mut copy), &mut squares);
        }
        for ((to, variance), mean) in to.iter_mut().zip(self.means(&squares, tile)).zip(means) {
            *to = [mean as f32, (1.0 / (variance + f64::from(self.op.eps)).sqrt()) as f32];
        }
    }

    /// Repeats the statistics of a tile's positions for each element.
    fn statistics(&self, statistics: &[[f32; 2]]) -> [Tile; 2] {
        [0, 1].map(|k| self.spread(statistics.iter().map(|s| f64::from(s[k]))))
    }

    /// Combines a tile's statistics with a block's weights.
    fn constants<'a>(&self, [mean, inverse]: &'a [Tile; 2], weight: &[f32], block: usize) -> TileConstants<'a> {
        TileConstants { mean, inverse, weight: lanes(weight, block * self.x.block, self.x.block) }
    }

    /// Runs the backward pass of a tile. `statistics` has the values for the whole sample. Adds to `totals`, which has
    /// the sums for all channels.
    fn tile_back(
        &self,
        (x, dy): (&[f32], &mut [f32]),
        statistics: &[[f32; 2]],
        weight: &[f32],
        tile: &TilePositions,
        totals: &mut [f64],
    ) {
        let b = self.x.block;
        let statistics = self.statistics(&statistics[tile.positions.clone()]);
        let mut sums = Sums { gradient: [0.0; TILE], product: [0.0; TILE], channels: [[0.0; LANES]; 2] };
        let (first, second) = totals.split_at_mut(self.x.blocks() * b);
        for (block, elements) in self.blocks(tile).enumerate() {
            sums.channels = [[0.0; LANES]; 2];
            reduce(&self.constants(&statistics, weight, block), &x[elements.clone()], &dy[elements], &mut sums);
            add_lanes(&sums.channels[0], b, &mut first[block * b..][..b]);
            add_lanes(&sums.channels[1], b, &mut second[block * b..][..b]);
        }
        let gradient = self.spread(self.means(&sums.gradient, tile));
        let product = self.spread(self.means(&sums.product, tile));
        let mut copies = [[0.0; TILE]; 2];
        for (block, elements) in self.blocks(tile).enumerate() {
            let [first, second] = &mut copies;
            let gradient = self.for_block(&gradient, block, first);
            let product = self.for_block(&product, block, second);
            let constants = self.constants(&statistics, weight, block);
            input_gradient(&constants, gradient, product, &x[elements.clone()], &mut dy[elements]);
        }
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c); 2]
    }

    fn state_bytes(&self) -> usize {
        self.statistics.len() * 8 + self.sums.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (weight, bias) = (pass.params.get(pass.slots[0]), pass.params.get(pass.slots[1]));
        let (x, b, mut statistics) = (x[0].as_slice(), self.x.block, std::mem::take(&mut self.statistics));
        let (plane, sample) = (self.x.shape.plane(), self.x.sample_elems());
        let parts = (Items::new(&mut statistics, plane), Items::new(y.as_mut_slice(), sample));
        self.threads.divide(self.x.n, parts, |samples, (statistics, y)| {
            let own = statistics.chunks_exact_mut(plane).zip(y.chunks_exact_mut(sample));
            for (x, (statistics, y)) in x[samples.start * sample..].chunks_exact(sample).zip(own) {
                for tile in self.tiles() {
                    let own = &mut statistics[tile.positions.clone()];
                    self.measure(x, &tile, own);
                    let tiles = self.statistics(own);
                    for (block, elements) in self.blocks(&tile).enumerate() {
                        let (constants, bias) = (self.constants(&tiles, weight, block), lanes(bias, block * b, b));
                        normalise(&constants, &bias, &x[elements.clone()], &mut y[elements]);
                    }
                }
            }
        });
        self.statistics = statistics;
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (weight, x, c) = (pass.params.get(pass.slots[0]), g.x[0].as_slice(), self.x.blocks() * self.x.block);
        let (plane, sample) = (self.x.shape.plane(), self.x.sample_elems());
        let mut totals = std::mem::replace(&mut self.sums, ChannelSums::new(self.threads, 0));
        let dy = Items::new(g.dy.as_mut_slice(), sample);
        let sums = totals.compute(self.x.n, dy, |samples, totals, dy| {
            for (n, dy) in samples.zip(dy.chunks_exact_mut(sample)) {
                let (x, statistics) = (&x[n * sample..][..sample], &self.statistics[n * plane..][..plane]);
                self.tiles().for_each(|tile| self.tile_back((x, dy), statistics, weight, &tile, totals));
            }
        });
        self.sums = totals;
        if !pass.frozen {
            store(g.dparams.get_mut(pass.slots[0]), &sums[..c]);
            store(g.dparams.get_mut(pass.slots[1]), &sums[c..]);
        }
        Ok(())
    }
}
