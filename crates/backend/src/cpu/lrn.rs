//! Local response normalisation. It processes all channels of a position at a time.

use base::simd;
use net::Lrn;

use super::device::Cpu;
use super::threads::Threads;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

/// A normalisation planned for one batch size.
#[derive(Clone, Copy)]
struct Loops {
    threads: Threads,
    op: Lrn,
    x: TensorDesc,
}

/// The channels of a position. `padded` has `radius` zeros on both sides, because windows are summed over it.
struct Column {
    /// Number of channels without padding. The rest of the last block is zero.
    real: usize,
    x: Vec<f32>,
    /// k + alpha * (sum of squares in the channel's window), for each channel.
    base: Vec<f32>,
    /// base^-beta, for each channel.
    power: Vec<f32>,
    dy: Vec<f32>,
    padded: Vec<f32>,
}

simd! {
    /// Computes `base` and `power` from `x`.
    fn powers(op: &Lrn, c: &mut Column) {
        let (n, r) = (c.x.len(), op.radius);
        for (p, x) in c.padded[r..r + n].iter_mut().zip(&c.x) {
            *p = x * x;
        }
        c.base.fill(0.0);
        for k in 0..=2 * r {
            for (b, p) in c.base.iter_mut().zip(&c.padded[k..k + n]) {
                *b += p;
            }
        }
        for (b, p) in c.base.iter_mut().zip(&mut c.power) {
            *b = op.alpha.mul_add(*b, op.k);
            let root = b.sqrt();
            *p = if op.beta == 0.75 { 1.0 / (root * root.sqrt()) } else { b.powf(-op.beta) };
        }
        // With k = 0, padding channels would compute 0 times infinity.
        c.base[c.real..].fill(1.0);
        c.power[c.real..].fill(1.0);
    }
}

simd! {
    /// Overwrites `dy` with dx = dy base^-beta - 2 alpha beta x * sum over the window of dy x base^(-beta-1).
    fn slopes(op: &Lrn, c: &mut Column) {
        let (n, r) = (c.x.len(), op.radius);
        for i in 0..n {
            c.padded[r + i] = c.dy[i] * c.x[i] * c.power[i] / c.base[i];
        }
        c.base.fill(0.0);
        for k in 0..=2 * r {
            for (b, p) in c.base.iter_mut().zip(&c.padded[k..k + n]) {
                *b += p;
            }
        }
        let factor = -2.0 * op.alpha * op.beta;
        for i in 0..n {
            c.dy[i] = c.dy[i].mul_add(c.power[i], factor * c.x[i] * c.base[i]);
        }
    }
}

impl Loops {
    fn column(&self) -> Column {
        let c = self.x.blocks() * self.x.block;
        let [x, base, power, dy] = [(); 4].map(|()| vec![0.0; c]);
        Column { real: self.x.shape.c, x, base, power, dy, padded: vec![0.0; c + 2 * self.op.radius] }
    }

    fn gather(&self, sample: &[f32], p: usize, to: &mut [f32]) {
        let (b, row) = (self.x.block, self.x.shape.plane() * self.x.block);
        for (i, to) in to.chunks_mut(b).enumerate() {
            to.copy_from_slice(&sample[i * row + p * b..][..b]);
        }
    }

    fn scatter(&self, from: &[f32], p: usize, sample: &mut [f32]) {
        let (b, row) = (self.x.block, self.x.shape.plane() * self.x.block);
        for (i, from) in from.chunks(b).enumerate() {
            sample[i * row + p * b..][..b].copy_from_slice(from);
        }
    }

    fn forward(&self, x: &[f32], y: &mut [f32]) {
        let (sample, n) = (self.x.sample_elems(), self.x.elems());
        self.threads.split(&mut y[..n], sample, |first, run| {
            let mut column = self.column();
            for (n, y) in (first..).zip(run.chunks_mut(sample)) {
                for p in 0..self.x.shape.plane() {
                    self.gather(&x[n * sample..][..sample], p, &mut column.x);
                    powers(&self.op, &mut column);
                    let Column { x, power, dy, .. } = &mut column;
                    dy.iter_mut().zip(x.iter().zip(power.iter())).for_each(|(y, (x, p))| *y = x * p);
                    self.scatter(dy, p, y);
                }
            }
        });
    }

    fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let (sample, n) = (self.x.sample_elems(), self.x.elems());
        self.threads.split(&mut dx[..n], sample, |first, run| {
            let mut column = self.column();
            for (n, dx) in (first..).zip(run.chunks_mut(sample)) {
                for p in 0..self.x.shape.plane() {
                    self.gather(&x[n * sample..][..sample], p, &mut column.x);
                    self.gather(&dy[n * sample..][..sample], p, &mut column.dy);
                    powers(&self.op, &mut column);
                    slopes(&self.op, &mut column);
                    self.scatter(&column.dy, p, dx);
                }
            }
        });
    }
}

pub(super) fn plan(cpu: &Cpu, op: &Lrn, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let loops = Loops { threads: cpu.threads, op: *op, x: r.x[0] };
    unary::<Cpu>(
        loops.x,
        Keeps::INPUT,
        move |x, y| loops.forward(x.as_slice(), y.as_mut_slice()),
        move |x, dy, dx| loops.backward(x.as_slice(), dy.as_slice(), dx.as_mut_slice()),
    )
}
