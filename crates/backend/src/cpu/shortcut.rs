//! The parameter-free shortcut of a residual block. Channels that are contiguous both in the input and in the output
//! are copied together.

use net::Shortcut;

use super::device::Cpu;
use super::lanes::gcd;
use super::relayout;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

/// The stretches of channels that are copied from x to y.
#[derive(Clone, Copy)]
struct Stretches {
    stride: usize,
    x: TensorDesc,
    y: TensorDesc,
    /// Number of zero channels in front of the input's channels.
    before: usize,
    /// Number of channels that are copied together.
    step: usize,
}

impl Stretches {
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

pub(super) fn plan(cpu: &Cpu, op: &Shortcut, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, x, y) = (cpu.threads, r.x[0], relayout::output_layout(cpu, &r.x[0], r.output()?));
    let before = op.before(x.shape);
    let step = gcd(gcd(x.block, before), x.shape.c);
    let stretches = Stretches { stride: op.stride, x, y, before, step };
    let (x_sample, y_sample) = (x.sample_elems(), y.sample_elems());
    unary::<Cpu>(
        y,
        Keeps::NOTHING,
        move |from, to| {
            let from = from.as_slice();
            threads.each_item(&mut to.as_mut_slice()[..y.elems()], y_sample, |n, y| {
                let x = &from[n * x_sample..][..x_sample];
                y.fill(0.0);
                stretches.each(|from, to| y[to..to + step].copy_from_slice(&x[from..from + step]));
            });
        },
        move |_, dy, dx| {
            let dy = dy.as_slice();
            threads.each_item(&mut dx.as_mut_slice()[..x.elems()], x_sample, |n, dx| {
                let dy = &dy[n * y_sample..][..y_sample];
                dx.fill(0.0);
                stretches.each(|to, from| dx[to..to + step].copy_from_slice(&dy[from..from + step]));
            });
        },
    )
}
