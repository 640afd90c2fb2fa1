//! Batch normalisation with residual and ReLU in one pass each way: forward reads x twice (moments, result), backward reads
//! dy and x twice. What happens to a row is `rows`'s.

pub(super) mod rows;

use std::ops::Range;

use rows::{Constants, RELU, RESIDUAL, Row, SECOND, Slope};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::format::Format;
use super::lanes::{LANES, Lanes, period};
use super::threads::{Shared, Threads};
use crate::backend::op::Norm;
use crate::backend::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, across};

/// Batch normalisation of known sizes, with the statistics of its last batch.
pub(super) struct Plan {
    threads: Threads,
    op: Norm,
    x: TensorDesc,
    /// Per channel, padding included: batch mean, sum of squared offsets from it.
    mean: Vec<f64>,
    m2: Vec<f64>,
    /// Values a channel behind both: this rank's, or the whole batch's.
    n: f64,
    /// gamma / sqrt(var + eps), and beta - mean * that.
    scale: Vec<f32>,
    shift: Vec<f32>,
    /// Two sums per channel for each thread.
    partial: Vec<f64>,
    /// Whether its output may be made anew in backward.
    recomputes: bool,
}

/// How rows lie in memory: (N, blocks, plane, block).
#[derive(Clone, Copy)]
struct Layout {
    blocks: usize,
    /// Elements of a row.
    len: usize,
}

impl Layout {
    /// The row of one sample and channel block.
    fn row(self, n: usize, block: usize) -> Range<usize> {
        let at = (n * self.blocks + block) * self.len;
        at..at + self.len
    }
}

/// What a backward pass reads.
struct View<'a> {
    x: &'a [f32],
    /// Read with ReLU and a residual alone.
    y: &'a [f32],
    /// Empty without a second summand.
    second: &'a [f32],
    layout: Layout,
    /// Groups of lanes that make a block.
    groups: usize,
    /// Of each group of each channel block.
    constants: Vec<Constants>,
}

impl View<'_> {
    fn row(&self, n: usize, block: usize) -> Row<'_> {
        let row = self.layout.row(n, block);
        let second = self.second.get(row.clone()).unwrap_or(&[]);
        let constants = &self.constants[self.groups * block..][..self.groups];
        let y = self.y.get(row.clone()).unwrap_or(&[]);
        Row { x: &self.x[row], y, second, constants }
    }
}

impl Plan {
    pub fn new(threads: Threads, op: Norm, r: &PlanRequest<'_, Cpu>) -> Self {
        let x = r.x[0];
        let c = x.blocks() * x.block;
        let partial = vec![0.0; threads.0 * 2 * c];
        Self {
            threads,
            op,
            x,
            mean: vec![0.0; c],
            m2: vec![0.0; c],
            n: 1.0,
            scale: vec![0.0; c],
            shift: vec![0.0; c],
            partial,
            recomputes: false,
        }
    }

    fn channels(&self) -> usize {
        self.mean.len()
    }

    fn layout(&self) -> Layout {
        Layout { blocks: self.x.blocks(), len: self.x.shape.plane() * self.x.block }
    }

    fn mode(&self) -> usize {
        RELU * usize::from(self.op.relu) + RESIDUAL * usize::from(self.op.residual)
    }

    fn count(&self) -> f64 {
        (self.x.n * self.x.shape.plane()) as f64
    }

    /// Groups of lanes that make a channel block.
    fn groups(&self) -> usize {
        period(self.x.block)
    }

    /// Of a group of lanes, counted through all channel blocks, one value for each lane.
    fn lanes<T: Copy>(&self, values: &[T], group: usize, to: impl Fn(T) -> f32) -> Lanes {
        let (b, groups) = (self.x.block, self.groups());
        std::array::from_fn(|lane| to(values[group / groups * b + (group % groups * LANES + lane) % b]))
    }

    /// The lanes of all groups of all channel blocks.
    fn all_lanes(&self, values: &[f32]) -> Vec<Lanes> {
        (0..self.x.blocks() * self.groups()).map(|group| self.lanes(values, group, |v| v)).collect()
    }

    /// Mean, scale and shift of all groups of all channel blocks.
    fn constants(&self) -> Vec<Constants> {
        let of = |group| Constants {
            mean: self.lanes(&self.mean, group, |v| v as f32),
            scale: self.lanes(&self.scale, group, |v| v),
            shift: self.lanes(&self.shift, group, |v| v),
        };
        (0..self.x.blocks() * self.groups()).map(of).collect()
    }

    /// Runs `f(sample, block)` over all rows; each is one thread's.
    fn each_row(&self, f: impl Fn(usize, usize) + Sync) {
        self.threads.each(self.x.n, |_, samples| {
            (0..self.x.blocks()).for_each(|block| samples.clone().for_each(|n| f(n, block)));
        });
    }

    /// Runs `f(sample, block, first sum's lanes, second sum's lanes)` over all rows and leaves both sums per channel in `a`
    /// and `b`. Each thread takes a run of samples; the threads' sums are added in their order.
    fn sums(&mut self, f: impl Fn(usize, usize, &mut [Lanes], &mut [Lanes]) + Sync) -> (Vec<f64>, Vec<f64>) {
        let (c, b, blocks, n, groups) = (self.channels(), self.x.block, self.x.blocks(), self.x.n, self.groups());
        self.partial.fill(0.0);
        let partial = Shared::new(&mut self.partial);
        self.threads.each(n, |t, samples| {
            // SAFETY: each thread has its own stretch, and `partial` is borrowed until `each` returns.
            let (first, second) = unsafe { partial.part(2 * c * t..2 * c * (t + 1)) }.split_at_mut(c);
            let (mut s, mut q) = (vec![[0.0; LANES]; groups], vec![[0.0; LANES]; groups]);
            for block in 0..blocks {
                for n in samples.clone() {
                    s.fill([0.0; LANES]);
                    q.fill([0.0; LANES]);
                    f(n, block, &mut s, &mut q);
                    for (lane, (s, q)) in s.as_flattened().iter().zip(q.as_flattened()).enumerate() {
                        first[block * b + lane % b] += f64::from(*s);
                        second[block * b + lane % b] += f64::from(*q);
                    }
                }
            }
        });
        let total = |offset: usize| {
            (0..c).map(|i| (0..self.threads.0).map(|t| self.partial[2 * c * t + offset + i]).sum()).collect()
        };
        (total(0), total(c))
    }

    /// Batch mean and M2. Offsets are taken from the first sample's mean, which lies within the spread of the data: no
    /// cancellation, and one reading of x.
    fn statistics(&mut self, x: &[f32]) {
        let (layout, groups) = (self.layout(), self.groups());
        let near = self.near(x);
        let lanes = self.all_lanes(&near);
        let (s, q) = self.sums(|n, block, s, q| {
            rows::moments(&x[layout.row(n, block)], &lanes[block * groups..][..groups], s, q);
        });
        self.n = self.count();
        for i in 0..self.channels() {
            let offset = s[i] / self.n;
            self.mean[i] = f64::from(near[i]) + offset;
            self.m2[i] = (q[i] - self.n * offset * offset).max(0.0);
        }
    }

    /// Each channel's mean over the first sample.
    fn near(&self, x: &[f32]) -> Vec<f32> {
        let (b, plane, mut sums) = (self.x.block, self.x.shape.plane(), vec![0f64; self.channels()]);
        for (block, sums) in sums.chunks_exact_mut(b).enumerate() {
            for pixel in x[self.layout().row(0, block)].chunks_exact(b) {
                sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += f64::from(*x));
            }
        }
        sums.iter().map(|sum| (sum / plane as f64) as f32).collect()
    }

    /// y by the scale and shift of the last forward pass.
    fn normalise(&self, x: &[f32], residual: &[f32], y: &mut [f32]) {
        let (layout, mode, groups) = (self.layout(), self.mode(), self.groups());
        let (scale, shift) = (self.all_lanes(&self.scale), self.all_lanes(&self.shift));
        let shared = Shared::new(y);
        self.each_row(|n, block| {
            let (row, of) = (layout.row(n, block), block * groups..(block + 1) * groups);
            let r = residual.get(row.clone()).unwrap_or(&[]);
            // SAFETY: every row is written by one thread, `y` is borrowed for the whole call.
            let y = unsafe { shared.part(row.clone()) };
            rows::normalise(mode, &x[row], r, &scale[of.clone()], &shift[of], y);
        });
    }

    fn inverse_std(&self, i: usize) -> f64 {
        1.0 / (self.m2[i] / self.n + f64::from(self.op.eps)).sqrt()
    }

    /// Scale and shift of each real channel from mean and 1 / standard deviation; those of padding stay zero.
    fn set_scale(&mut self, gamma: Option<&[f32]>, beta: &[f32], statistics: impl Fn(&Self, usize) -> (f64, f64)) {
        for i in 0..self.x.shape.c {
            let (mean, inverse) = statistics(self, i);
            let scale = gamma.map_or(1.0, |gamma| f64::from(gamma[i])) * inverse;
            self.scale[i] = scale as f32;
            self.shift[i] = (f64::from(beta[i]) - mean * scale) as f32;
        }
    }

    /// dx = scale (g - S(g)/n - (x - mean) inverse^2 S(g (x - mean))/n), as a g + b x + c.
    fn slopes(&self, s: &[f64], sx: &[f64]) -> Vec<Slope> {
        let n = self.n;
        let mut b = vec![0.0; self.channels()];
        let mut c = vec![0.0; self.channels()];
        for i in 0..self.x.shape.c {
            let scale = f64::from(self.scale[i]);
            b[i] = -scale * self.inverse_std(i).powi(2) * sx[i] / n;
            c[i] = -scale * s[i] / n - b[i] * self.mean[i];
        }
        (0..self.x.blocks() * self.groups())
            .map(|group| Slope {
                a: self.lanes(&self.scale, group, |v| v),
                b: self.lanes(&b, group, |v: f64| v as f32),
                c: self.lanes(&c, group, |v: f64| v as f32),
            })
            .collect()
    }
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Norm, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan { recomputes: cpu.recomputes && !op.residual, ..Plan::new(cpu.threads, op.clone(), r) }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c); 1 + usize::from(self.op.scale)]
    }

    fn state_bytes(&self) -> usize {
        self.channels() * (8 + 8 + 4 + 4) + self.partial.len() * 8
    }

    fn keeps(&self) -> Keeps {
        // without a residual, ReLU's mask is computed again from the input
        Keeps { inputs: 1, output: self.op.relu && self.op.residual }
    }

    fn implementation(&self) -> String {
        "own".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(usize::from(self.op.residual))
    }

    fn adds(&self) -> bool {
        true
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        let (gamma, beta) = (gamma.map(|slot| pass.params.get(slot)), pass.params.get(beta));
        let residual = x.get(1).map_or(&[][..], |r| r.as_slice());
        let x = x[0].as_slice();
        if pass.takes_statistics() {
            self.statistics(x);
            if let Some(ranks) = pass.across {
                self.n = across::statistics(ranks, self.n, pass.running, &mut self.mean, &mut self.m2)?;
            }
            self.set_scale(gamma, beta, |plan, i| (plan.mean[i], plan.inverse_std(i)));
        } else {
            let (mean, var) = pass.running.split_at(self.x.shape.c);
            self.set_scale(gamma, beta, |plan, i| {
                (f64::from(mean[i]), 1.0 / (f64::from(var[i]) + f64::from(plan.op.eps)).sqrt())
            });
        }
        self.normalise(x, residual, y.as_mut_slice());
        Ok(())
    }

    fn recomputes(&self) -> bool {
        self.recomputes
    }

    fn recompute(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        self.normalise(x[0].as_slice(), &[], y.as_mut_slice());
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let dx = g.take_dx(0);
        let Gradients { x, y, dy, dy2, dparams, .. } = g;
        let second = dy2.map_or(&[][..], |d| d.as_slice());
        let mode = self.mode() + SECOND * usize::from(dy2.is_some());
        let (layout, groups) = (self.layout(), self.groups());
        let (x, y) = (x[0].as_slice(), y.as_slice());
        let view = View { x, y, second, layout, groups, constants: self.constants() };
        let shared = Shared::new(dy.as_mut_slice());
        let (mut s, mut sx) = self.sums(|n, block, s, sx| {
            // SAFETY: every row is one thread's, `dy` is borrowed for the whole call.
            let dy = unsafe { shared.part(layout.row(n, block)) };
            rows::reduce(mode, &view.row(n, block), dy, s, sx);
        });
        let c = self.x.shape.c;
        if pass.frozen {
            // running statistics do not depend on x: dx = scale g
            s.fill(0.0);
            sx.fill(0.0);
        }
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        for i in (0..c).filter(|_| !pass.frozen) {
            if let Some(gamma) = gamma {
                dparams.get_mut(gamma)[i] = (sx[i] * self.inverse_std(i)) as f32;
            }
            dparams.get_mut(beta)[i] = s[i] as f32;
        }
        // the parameters' own gradients are summed with all others; dx needs those of the whole batch here
        if let Some(ranks) = pass.across {
            across::gradients(ranks, c, &mut s, &mut sx)?;
        }
        let slopes = self.slopes(&s, &sx);
        if !self.op.residual {
            self.each_row(|n, block| {
                // SAFETY: every row is one thread's, `dy` is borrowed for the whole call.
                let dy = unsafe { shared.part(layout.row(n, block)) };
                rows::slope_in_place(mode, &slopes[block * groups..][..groups], &view.row(n, block), dy);
            });
        } else if let Some(dx) = dx {
            let dx = Shared::new(dx.as_mut_slice());
            self.each_row(|n, block| {
                let row = layout.row(n, block);
                // SAFETY: every row of both is one thread's, and both are borrowed for the whole call.
                let (g, dx) = unsafe { (shared.part(row.clone()), dx.part(row.clone())) };
                rows::slope(&slopes[block * groups..][..groups], &view.x[row], g, dx);
            });
        }
        Ok(())
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        let (c, n) = (self.x.shape.c, self.count());
        for i in 0..c {
            let d = self.mean[i] - f64::from(running[i]);
            sums[i] += n * d;
            // this rank's share of the whole batch's
            sums[c + i] += n * (self.m2[i] / self.n + d * d);
        }
        n as u64
    }
}
