//! Functions of one element: one pass over flat memory, whatever the layout. Padding is zero and must stay zero.

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use super::format::Format;
use super::threads::Threads;
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// `y = f(x)` of equally many elements.
pub(super) type Forward = fn(y: &mut [f32], x: &[f32]);
/// Turns the gradient of y into that of x, from both.
pub(super) type Backward = fn(dy: &mut [f32], x: &[f32], y: &[f32]);

/// A function of one element, of known size.
struct Plan {
    threads: Threads,
    forward: Forward,
    backward: Backward,
    y: TensorDesc,
}

/// Plans such a function, which maps zero to zero.
pub(super) fn plan(
    cpu: &Cpu,
    forward: Forward,
    backward: Backward,
    r: &PlanRequest<'_, Cpu>,
) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan { threads: cpu.threads, forward, backward, y: r.x[0] }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "own".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (n, x, forward) = (self.y.elems(), x[0].as_slice(), self.forward);
        self.threads.split(&mut y.as_mut_slice()[..n], UNIT, |unit, run| {
            forward(run, &x[unit * UNIT..][..run.len()]);
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (n, x, y, backward) = (self.y.elems(), g.x[0].as_slice(), g.y.as_slice(), self.backward);
        self.threads.split(&mut g.dy.as_mut_slice()[..n], UNIT, |unit, run| {
            let part = unit * UNIT..unit * UNIT + run.len();
            backward(run, &x[part.clone()], &y[part]);
        });
        Ok(())
    }
}
