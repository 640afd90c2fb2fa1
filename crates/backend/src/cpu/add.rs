//! Sum of two tensors.

use base::simd;
use net::Add;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// A sum of known size.
struct Plan {
    threads: Threads,
    y: TensorDesc,
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Add, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan { threads: cpu.threads, y: r.x[0] }))
}

simd! {
    fn sum_run(y: &mut [f32], a: &[f32], b: &[f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (n, a, b) = (self.y.elems(), x[0].as_slice(), x[1].as_slice());
        self.threads.split(&mut y.as_mut_slice()[..n], UNIT, |unit, run| {
            let from = unit * UNIT;
            sum_run(run, &a[from..from + run.len()], &b[from..]);
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(1) else { return Ok(()) };
        let (n, dy) = (self.y.elems(), g.dy.as_slice());
        self.threads.split(&mut dx.as_mut_slice()[..n], UNIT, |unit, run| {
            run.copy_from_slice(&dy[unit * UNIT..][..run.len()]);
        });
        Ok(())
    }
}
