//! Normalisation over groups of channels of each sample. It uses the same passes over rows as batch norm.

use std::slice::{from_mut, from_ref};

use net::GroupNorm;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::lanes::{LANES, Lanes, add_lanes, lanes};
use super::layout::Format;
use super::moments::ChannelSums;
use super::norm::rows::{self, Constants, DxCoefficients, Row};
use super::threads::Threads;
use crate::memory::store;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// A group norm planned for a fixed batch size, with the statistics of its last batch.
struct Plan {
    threads: Threads,
    op: GroupNorm,
    x: TensorDesc,
    /// Mean and 1 / standard deviation for each group of each sample.
    statistics: Vec<[f64; 2]>,
    sums: ChannelSums,
}

pub(super) fn plan(cpu: &Cpu, op: &GroupNorm, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    let statistics = vec![[0.0; 2]; x.n * op.groups];
    let sums = ChannelSums::new(cpu.threads, 2 * x.blocks() * x.block);
    Ok(Box::new(Plan { threads: cpu.threads, op: *op, x, statistics, sums }))
}

/// Returns constants with only a mean, for a row without ReLU.
fn of_mean(mean: Lanes) -> Constants {
    Constants { mean, scale: [0.0; LANES], shift: [0.0; LANES] }
}

/// Returns a row without residual and without a second gradient.
fn plain_row<'a>(x: &'a [f32], constants: &'a Constants) -> Row<'a, f32, f32> {
    Row { x, bits: &[], second: &[], constants: from_ref(constants) }
}

/// Two sums for each channel of a sample over all positions, including padding channels.
type Pair = [Vec<f64>; 2];

impl Plan {
    fn channels(&self) -> usize {
        self.x.blocks() * self.x.block
    }

    /// Returns the elements per row. A row is one channel block's plane.
    fn row(&self) -> usize {
        self.x.shape.plane() * self.x.block
    }

    /// Returns the channels per group, and the values that a group has in a sample.
    fn group(&self) -> (usize, f64) {
        let channels = self.x.shape.c / self.op.groups;
        (channels, (channels * self.x.shape.plane()) as f64)
    }

    /// Calls `f(block, lanes of the first sum, lanes of the second sum)` for each row of a sample and adds up the lanes
    /// per channel.
    fn rows(&self, mut f: impl FnMut(usize, &mut Lanes, &mut Lanes)) -> Pair {
        let (c, b) = (self.channels(), self.x.block);
        let mut sums: Pair = [vec![0.0; c], vec![0.0; c]];
        for block in 0..self.x.blocks() {
            let (mut s, mut q) = ([0.0; LANES], [0.0; LANES]);
            f(block, &mut s, &mut q);
            add_lanes(&s, b, &mut sums[0][block * b..][..b]);
            add_lanes(&q, b, &mut sums[1][block * b..][..b]);
        }
        sums
    }

    /// Computes mean and 1 / standard deviation of each group of a sample. It sums each channel's offsets from the
    /// channel's first value and combines the channels with Chan's formula.
    fn measure(&self, x: &[f32], to: &mut [[f64; 2]]) {
        let (row, b) = (self.row(), self.x.block);
        let reference: Vec<f32> = (0..self.channels()).map(|c| x[c / b * row + c % b]).collect();
        let sums = self.rows(|block, s, q| {
            let reference = lanes(&reference, block * b, b);
            rows::moments(&x[block * row..][..row], from_ref(&reference), from_mut(s), from_mut(q));
        });
        let ((channels, values), plane) = (self.group(), self.x.shape.plane() as f64);
        for (group, to) in to.iter_mut().enumerate() {
            let own = group * channels..(group + 1) * channels;
            let means: Vec<f64> = own.clone().map(|c| f64::from(reference[c]) + sums[0][c] / plane).collect();
            let mean = means.iter().sum::<f64>() / channels as f64;
            let around = |(c, own): (usize, &f64)| {
                (sums[1][c] - sums[0][c].powi(2) / plane).max(0.0) + plane * (own - mean).powi(2)
            };
            let m2: f64 = own.zip(&means).map(around).sum();
            *to = [mean, 1.0 / (m2 / values + f64::from(self.op.eps)).sqrt()];
        }
    }

    /// Returns `f(mean, 1 / standard deviation, channel)` for each channel of a sample, without padding channels.
    fn each_channel(&self, statistics: &[[f64; 2]], f: impl Fn([f64; 2], usize) -> f64) -> Vec<f32> {
        let (channels, _) = self.group();
        (0..self.x.shape.c).map(|c| f(statistics[c / channels], c) as f32).collect()
    }

    /// Returns the coefficients in dx = a dy + b x + c for each channel of a sample. `sums` has the sums of dy and of
    /// dy (x - mean).
    fn coefficients(&self, statistics: &[[f64; 2]], weight: &[f32], sums: &Pair) -> Vec<DxCoefficients> {
        let (channels, values) = self.group();
        let total = |of: &[f64], group: usize| -> f64 {
            (group * channels..(group + 1) * channels).map(|c| f64::from(weight[c]) * of[c]).sum()
        };
        let per_group: Vec<[f64; 2]> = (0..self.op.groups)
            .map(|group| {
                let [mean, inverse] = statistics[group];
                let b = -inverse.powi(3) * total(&sums[1], group) / values;
                [b, -inverse * total(&sums[0], group) / values - b * mean]
            })
            .collect();
        let a = self.each_channel(statistics, |[_, inverse], c| f64::from(weight[c]) * inverse);
        let b = self.each_channel(&per_group, |[b, _], _| b);
        let c = self.each_channel(&per_group, |[_, c], _| c);
        let of = |values: &[f32], block: usize| lanes(values, block * self.x.block, self.x.block);
        (0..self.x.blocks())
            .map(|block| DxCoefficients { a: of(&a, block), b: of(&b, block), c: of(&c, block) })
            .collect()
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
        self.statistics.len() * 16 + self.sums.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (weight, bias) = (pass.params.get(pass.slots[0]), pass.params.get(pass.slots[1]));
        let (x, sample, row, b) = (x[0].as_slice(), self.x.sample_elems(), self.row(), self.x.block);
        let (groups, mut statistics) = (self.op.groups, std::mem::take(&mut self.statistics));
        let parts = (Items::new(&mut statistics, groups), Items::new(y.as_mut_slice(), sample));
        self.threads.divide(self.x.n, parts, |samples, (statistics, y)| {
            let own = statistics.chunks_exact_mut(groups).zip(y.chunks_exact_mut(sample));
            for (n, (own, y)) in samples.zip(own) {
                let x = &x[n * sample..][..sample];
                self.measure(x, own);
                let scale = self.each_channel(own, |[_, inverse], c| f64::from(weight[c]) * inverse);
                let shift = self
                    .each_channel(own, |[mean, inverse], c| f64::from(bias[c]) - mean * f64::from(weight[c]) * inverse);
                for (block, (x, y)) in x.chunks_exact(row).zip(y.chunks_exact_mut(row)).enumerate() {
                    let (scale, shift) = (lanes(&scale, block * b, b), lanes(&shift, block * b, b));
                    rows::normalise(0, (x, &[]), from_ref(&scale), from_ref(&shift), y, &mut []);
                }
            }
        });
        self.statistics = statistics;
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let weight = pass.params.get(pass.slots[0]);
        let (x, sample, row, b) = (g.x[0].as_slice(), self.x.sample_elems(), self.row(), self.x.block);
        let (c, groups, channels) = (self.channels(), self.op.groups, self.group().0);
        let dy = Items::new(g.dy.as_mut_slice(), sample);
        let mut totals = std::mem::replace(&mut self.sums, ChannelSums::new(self.threads, 0));
        let sums = totals.compute(self.x.n, dy, |samples, totals, dy| {
            for (n, dy) in samples.zip(dy.chunks_exact_mut(sample)) {
                let (x, own) = (&x[n * sample..][..sample], &self.statistics[n * groups..][..groups]);
                let mean = self.each_channel(own, |[mean, _], _| mean);
                let sums = self.rows(|block, s, sx| {
                    let (part, constants) = (block * row..(block + 1) * row, of_mean(lanes(&mean, block * b, b)));
                    let row = plain_row(&x[part.clone()], &constants);
                    rows::reduce(0, &row, &mut dy[part], from_mut(s), from_mut(sx));
                });
                for channel in 0..self.x.shape.c {
                    totals[channel] += sums[1][channel] * own[channel / channels][1];
                    totals[c + channel] += sums[0][channel];
                }
                let (coefficients, zero) = (self.coefficients(own, weight, &sums), of_mean([0.0; LANES]));
                for ((block, x), dy) in coefficients.iter().zip(x.chunks_exact(row)).zip(dy.chunks_exact_mut(row)) {
                    rows::input_gradient_in_place(0, from_ref(block), &plain_row(x, &zero), dy);
                }
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
