//! The parameter-free shortcut of a residual block. Channels that are contiguous both in the input and in the output
//! are copied together.

use net::Shortcut;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::relayout;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

pub(super) struct Plan {
    threads: Threads,
    stride: usize,
    x: TensorDesc,
    y: TensorDesc,
    /// Number of zero channels in front of the input's channels.
    before: usize,
    /// Number of channels that are copied together.
    step: usize,
}

impl Plan {
    pub fn new(cpu: &Cpu, op: Shortcut, r: &PlanRequest<'_, Cpu>) -> Result<Self, Error> {
        let x = r.x[0];
        let y = relayout::output_layout(cpu, &x, r.output()?);
        let before = op.before(x.shape);
        let step = gcd(gcd(x.block, before), x.shape.c);
        Ok(Self { threads: cpu.threads, stride: op.stride, x, y, before, step })
    }

    /// Calls `f(offset in x's sample, offset in y's sample)` for each stretch of `step` channels that is copied.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let (x, y) = (self.x.shape, self.y.shape);
        for c in (0..x.c).step_by(self.step) {
            for h in 0..y.h {
                for w in 0..y.w {
                    let from = self.x.at(c, (h * x.w + w) * self.stride);
                    f(from, self.y.at(c + self.before, h * y.w + w));
                }
            }
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) fn plan(cpu: &Cpu, op: &Shortcut, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan::new(cpu, *op, r)?))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (sx, sy, n) = (self.x.sample_elems(), self.y.sample_elems(), self.y.elems());
        let x = x[0].as_slice();
        self.threads.split(&mut y.as_mut_slice()[..n], sy, |first, run| {
            run.fill(0.0);
            for (n, y) in (first..).zip(run.chunks_mut(sy)) {
                let x = &x[n * sx..][..sx];
                self.each(|from, to| y[to..to + self.step].copy_from_slice(&x[from..from + self.step]));
            }
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (sx, sy, n) = (self.x.sample_elems(), self.y.sample_elems(), self.x.elems());
        let dy = g.dy.as_slice();
        self.threads.split(&mut dx.as_mut_slice()[..n], sx, |first, run| {
            run.fill(0.0);
            for (n, dx) in (first..).zip(run.chunks_mut(sx)) {
                let dy = &dy[n * sy..][..sy];
                self.each(|to, from| dx[to..to + self.step].copy_from_slice(&dy[from..from + self.step]));
            }
        });
        Ok(())
    }
}
