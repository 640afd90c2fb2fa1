//! Batch normalisation with residual and ReLU in one pass each way: forward reads x twice (moments, result), backward reads
//! dy and x twice. Rows of one channel block are cut into groups of [`LANES`] elements, lane i holding channel i % block.

use super::buf::AlignedBuf;
use super::simd::simd;
use super::threads::{Shared, Threads};
use super::{Cpu, Format};
use crate::backend::op::Norm;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc, across};

/// Elements that the inner loops take at once; every block size divides it.
const LANES: usize = 32;

/// One value for each lane.
type Lanes = [f32; LANES];

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
}

/// Bits of a backward kernel's mode.
const RELU: usize = 1;
const RESIDUAL: usize = 2;
const SECOND: usize = 4;

simd! {
    /// Adds sums of (x - k) and (x - k)^2 of one row to `s` and `q`.
    fn moments(x: &[f32], k: &Lanes, s: &mut Lanes, q: &mut Lanes) {
        let mut add = |lane: usize, x: f32| {
            let d = x - k[lane];
            s[lane] += d;
            q[lane] = d.mul_add(d, q[lane]);
        };
        let (groups, rest) = x.as_chunks::<LANES>();
        for group in groups {
            group.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
        }
        rest.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
    }
}

simd! {
    fn normalise<M: usize>(x: &[f32], residual: &[f32], scale: &Lanes, shift: &Lanes, y: &mut [f32]) {
        let value = |lane: usize, x: f32, r: f32| {
            let mut v = x.mul_add(scale[lane], shift[lane]);
            if M & RESIDUAL != 0 {
                v += r;
            }
            if M & RELU != 0 && v <= 0.0 { 0.0 } else { v }
        };
        let n = y.len();
        let (x, residual) = (&x[..n], if M & RESIDUAL != 0 { &residual[..n] } else { &x[..n] });
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES) {
            let (x, r) = (&x[at..at + LANES], &residual[at..at + LANES]);
            let y = &mut y[at..at + LANES];
            for lane in 0..LANES {
                y[lane] = value(lane, x[lane], r[lane]);
            }
        }
        for i in whole..n {
            y[i] = value(i - whole, x[i], residual[i]);
        }
    }
}

/// Rows and per-lane constants of a backward pass.
struct Row<'a> {
    x: &'a [f32],
    y: &'a [f32],
    second: &'a [f32],
    mean: &'a Lanes,
    scale: &'a Lanes,
    shift: &'a Lanes,
}

simd! {
    /// Makes g = the gradient behind ReLU and sums g and g (x - mean). With a residual input or a second summand, g replaces
    /// dy in memory; else the next pass makes it again.
    fn reduce<M: usize>(row: &Row<'_>, dy: &mut [f32], s: &mut Lanes, sx: &mut Lanes) {
        let n = dy.len();
        let x = &row.x[..n];
        let y = if M & RESIDUAL != 0 { &row.y[..n] } else { x };
        let second = if M & SECOND != 0 { &row.second[..n] } else { x };
        let mut one = |lane: usize, x: f32, y: f32, second: f32, dy: &mut f32| {
            let g = gradient::<M>(row, lane, x, y, second, *dy);
            s[lane] += g;
            sx[lane] = g.mul_add(x - row.mean[lane], sx[lane]);
            if M & (RESIDUAL | SECOND) != 0 {
                *dy = g;
            }
        };
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES) {
            let part = at..at + LANES;
            let (x, y, second, dy) = (&x[part.clone()], &y[part.clone()], &second[part.clone()], &mut dy[part]);
            for lane in 0..LANES {
                one(lane, x[lane], y[lane], second[lane], &mut dy[lane]);
            }
        }
        for i in whole..n {
            one(i - whole, x[i], y[i], second[i], &mut dy[i]);
        }
    }
}

/// dy, plus its second summand, where ReLU let the value through. Without a residual the value is computed again from x by the
/// forward pass's own formula, which saves reading y.
#[inline(always)]
fn gradient<const M: usize>(row: &Row<'_>, lane: usize, x: f32, y: f32, second: f32, dy: f32) -> f32 {
    let g = if M & SECOND != 0 { dy + second } else { dy };
    let value = if M & RESIDUAL != 0 { y } else { x.mul_add(row.scale[lane], row.shift[lane]) };
    if M & RELU == 0 || value > 0.0 { g } else { 0.0 }
}

/// dx = a g + (b x + c), per lane.
struct Slope {
    a: Lanes,
    b: Lanes,
    c: Lanes,
}

simd! {
    /// dx from stored gradients.
    fn slope(k: &Slope, x: &[f32], g: &[f32], dx: &mut [f32]) {
        let n = dx.len();
        let (x, g) = (&x[..n], &g[..n]);
        let value = |lane: usize, x: f32, g: f32| k.a[lane].mul_add(g, k.b[lane].mul_add(x, k.c[lane]));
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES) {
            let (x, g, dx) = (&x[at..at + LANES], &g[at..at + LANES], &mut dx[at..at + LANES]);
            for lane in 0..LANES {
                dx[lane] = value(lane, x[lane], g[lane]);
            }
        }
        for i in whole..n {
            dx[i] = value(i - whole, x[i], g[i]);
        }
    }
}

simd! {
    /// dx in place of dy, which still lacks ReLU's mask.
    fn slope_in_place<M: usize>(k: &Slope, row: &Row<'_>, dy: &mut [f32]) {
        let n = dy.len();
        let x = &row.x[..n];
        let value = |lane: usize, x: f32, dy: f32| {
            let g = gradient::<M>(row, lane, x, 0.0, 0.0, dy);
            k.a[lane].mul_add(g, k.b[lane].mul_add(x, k.c[lane]))
        };
        let whole = n - n % LANES;
        for at in (0..whole).step_by(LANES) {
            let (x, dy) = (&x[at..at + LANES], &mut dy[at..at + LANES]);
            for lane in 0..LANES {
                dy[lane] = value(lane, x[lane], dy[lane]);
            }
        }
        for i in whole..n {
            dy[i] = value(i - whole, x[i], dy[i]);
        }
    }
}

impl Plan {
    pub fn new(threads: Threads, op: Norm, r: &Request<'_, Cpu>) -> Self {
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
        }
    }

    fn channels(&self) -> usize {
        self.mean.len()
    }

    fn row_len(&self) -> usize {
        self.x.shape.plane() * self.x.block
    }

    /// Elements of the rows of one sample, by channel block.
    fn row(&self, n: usize, block: usize) -> std::ops::Range<usize> {
        let at = (n * self.x.blocks() + block) * self.row_len();
        at..at + self.row_len()
    }

    fn mode(&self) -> usize {
        RELU * usize::from(self.op.relu) + RESIDUAL * usize::from(self.op.residual)
    }

    fn count(&self) -> f64 {
        (self.x.n * self.x.shape.plane()) as f64
    }

    /// One value per lane for a channel block.
    fn lanes<T: Copy>(&self, values: &[T], block: usize, to: impl Fn(T) -> f32) -> Lanes {
        let b = self.x.block;
        std::array::from_fn(|lane| to(values[block * b + lane % b]))
    }

    /// Runs `f(sample, block, first sum's lanes, second sum's lanes)` over all rows and leaves both sums per channel in `a`
    /// and `b`. Each thread takes a run of samples; the threads' sums are added in their order.
    fn sums(&mut self, f: impl Fn(usize, usize, &mut Lanes, &mut Lanes) + Sync) -> (Vec<f64>, Vec<f64>) {
        let (c, b, blocks, n) = (self.channels(), self.x.block, self.x.blocks(), self.x.n);
        self.partial.fill(0.0);
        let partial = Shared::new(&mut self.partial);
        self.threads.each(n, |t, samples| {
            // SAFETY: each thread has its own stretch, and `partial` is borrowed until `each` returns.
            let (first, second) = unsafe { partial.part(2 * c * t..2 * c * (t + 1)) }.split_at_mut(c);
            for block in 0..blocks {
                for n in samples.clone() {
                    let (mut s, mut q) = ([0.0; LANES], [0.0; LANES]);
                    f(n, block, &mut s, &mut q);
                    for lane in 0..LANES {
                        first[block * b + lane % b] += f64::from(s[lane]);
                        second[block * b + lane % b] += f64::from(q[lane]);
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
        let (b, plane) = (self.x.block, self.x.shape.plane());
        let mut near = vec![0f32; self.channels()];
        for (i, near) in near.iter_mut().enumerate() {
            let row = &x[self.row(0, i / b)];
            let sum: f64 = row[i % b..].iter().step_by(b).map(|v| f64::from(*v)).sum();
            *near = (sum / plane as f64) as f32;
        }
        let layout = (self.x.blocks(), self.row_len());
        let lanes: Vec<Lanes> = (0..layout.0).map(|block| self.lanes(&near, block, |v| v)).collect();
        let (s, q) = self.sums(|n, block, s, q| {
            let at = (n * layout.0 + block) * layout.1;
            moments(&x[at..at + layout.1], &lanes[block], s, q);
        });
        self.n = self.count();
        for i in 0..self.channels() {
            let offset = s[i] / self.n;
            self.mean[i] = f64::from(near[i]) + offset;
            self.m2[i] = (q[i] - self.n * offset * offset).max(0.0);
        }
    }

    fn inverse_std(&self, i: usize) -> f64 {
        1.0 / (self.m2[i] / self.n + f64::from(self.op.eps)).sqrt()
    }

    /// Scale and shift of each real channel from mean and 1 / standard deviation; those of padding stay zero.
    fn set_scale(&mut self, gamma: &[f32], beta: &[f32], statistics: impl Fn(&Self, usize) -> (f64, f64)) {
        for i in 0..self.x.shape.c {
            let (mean, inverse) = statistics(self, i);
            let scale = f64::from(gamma[i]) * inverse;
            self.scale[i] = scale as f32;
            self.shift[i] = (f64::from(beta[i]) - mean * scale) as f32;
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
        self.channels() * (8 + 8 + 4 + 4) + self.partial.len() * 8
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
        let (gamma, beta) = (pass.params.get(pass.slots[0]), pass.params.get(pass.slots[1]));
        let residual = x.get(1).map_or(&[][..], |r| r.as_slice());
        let x = x[0].as_slice();
        if pass.training {
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
        let shared = Shared::new(y.as_mut_slice());
        self.threads.each(self.x.n, |_, samples| {
            for block in 0..self.x.blocks() {
                let (scale, shift) = (self.lanes(&self.scale, block, |v| v), self.lanes(&self.shift, block, |v| v));
                for n in samples.clone() {
                    let row = self.row(n, block);
                    let r = residual.get(row.clone()).unwrap_or(&[]);
                    // SAFETY: every row is written by one thread, `y` is borrowed for the whole call.
                    let y = unsafe { shared.part(row.clone()) };
                    match self.mode() {
                        0 => normalise::<0>(&x[row], r, &scale, &shift, y),
                        1 => normalise::<1>(&x[row], r, &scale, &shift, y),
                        2 => normalise::<2>(&x[row], r, &scale, &shift, y),
                        _ => normalise::<3>(&x[row], r, &scale, &shift, y),
                    }
                }
            }
        });
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Gradients { x, y, dy, dy2, dx, dparams } = g;
        let (x, y) = (x[0].as_slice(), y.as_slice());
        let second = dy2.map_or(&[][..], |d| d.as_slice());
        let mode = self.mode() + SECOND * usize::from(dy2.is_some());
        let blocks = self.x.blocks();
        let means: Vec<Lanes> = (0..blocks).map(|b| self.lanes(&self.mean, b, |v| v as f32)).collect();
        let scales: Vec<Lanes> = (0..blocks).map(|b| self.lanes(&self.scale, b, |v| v)).collect();
        let shifts: Vec<Lanes> = (0..blocks).map(|b| self.lanes(&self.shift, b, |v| v)).collect();
        let len = self.row_len();
        let row = |n: usize, block: usize| {
            let at = (n * blocks + block) * len;
            let part = at..at + len;
            let second = second.get(part.clone()).unwrap_or(&[]);
            let (mean, scale, shift) = (&means[block], &scales[block], &shifts[block]);
            (part.clone(), Row { x: &x[part.clone()], y: &y[part], second, mean, scale, shift })
        };
        let shared = Shared::new(dy.as_mut_slice());
        let (mut s, mut sx) = self.sums(|n, block, s, sx| {
            let (part, row) = row(n, block);
            // SAFETY: every row is one thread's, `dy` is borrowed for the whole call.
            let dy = unsafe { shared.part(part) };
            match mode {
                0 => reduce::<0>(&row, dy, s, sx),
                1 => reduce::<1>(&row, dy, s, sx),
                2 => reduce::<2>(&row, dy, s, sx),
                3 => reduce::<3>(&row, dy, s, sx),
                4 => reduce::<4>(&row, dy, s, sx),
                5 => reduce::<5>(&row, dy, s, sx),
                6 => reduce::<6>(&row, dy, s, sx),
                _ => reduce::<7>(&row, dy, s, sx),
            }
        });
        let c = self.x.shape.c;
        for i in 0..c {
            dparams.get_mut(pass.slots[0])[i] = (sx[i] * self.inverse_std(i)) as f32;
            dparams.get_mut(pass.slots[1])[i] = s[i] as f32;
        }
        // the parameters' own gradients are summed with all others; dx needs those of the whole batch here
        if let Some(ranks) = pass.across {
            across::gradients(ranks, c, &mut s, &mut sx)?;
        }
        let slopes = self.slopes(&s, &sx);
        if !self.op.residual {
            self.threads.each(self.x.n, |_, samples| {
                for (block, n) in (0..blocks).flat_map(|b| samples.clone().map(move |n| (b, n))) {
                    let (part, row) = row(n, block);
                    // SAFETY: every row is one thread's, `dy` is borrowed for the whole call.
                    let dy = unsafe { shared.part(part) };
                    // with a second summand the masked gradient is already there
                    if mode == RELU {
                        slope_in_place::<1>(&slopes[block], &row, dy);
                    } else {
                        slope_in_place::<0>(&slopes[block], &row, dy);
                    }
                }
            });
        } else if let Some(dx) = dx {
            let dx = Shared::new(dx.as_mut_slice());
            self.threads.each(self.x.n, |_, samples| {
                for (block, n) in (0..blocks).flat_map(|b| samples.clone().map(move |n| (b, n))) {
                    let (part, row) = row(n, block);
                    // SAFETY: every row of both is one thread's, and both are borrowed for the whole call.
                    let (g, dx) = unsafe { (shared.part(part.clone()), dx.part(part)) };
                    slope(&slopes[block], row.x, g, dx);
                }
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

impl Plan {
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
        (0..self.x.blocks())
            .map(|block| Slope {
                a: self.lanes(&self.scale, block, |v| v),
                b: self.lanes(&b, block, |v: f64| v as f32),
                c: self.lanes(&c, block, |v: f64| v as f32),
            })
            .collect()
    }
}
