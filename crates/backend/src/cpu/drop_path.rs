//! Stochastic depth: one factor a sample.

use net::DropPath;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::threads::Threads;
use crate::draws::drop_path_factor;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Of known size.
struct Plan {
    threads: Threads,
    p: f32,
    index: u16,
    x: TensorDesc,
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &DropPath, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan { threads: cpu.threads, p: op.0, index: r.index, x: r.x[0] }))
}

impl Plan {
    /// Calls `f(first element of the sample, its factor, its elements of y)` for all samples of the batch.
    fn each(&self, pass: &Pass<'_, Cpu>, y: &mut [f32], f: impl Fn(usize, f32, &mut [f32]) + Sync) {
        let (sample, n, training) = (self.x.sample_elems(), self.x.elems(), pass.training);
        let (p, index, key) = (self.p, self.index, pass.key);
        self.threads.split(&mut y[..n], sample, |first, run| {
            for (row, y) in (first..).zip(run.chunks_exact_mut(sample)) {
                f(row * sample, if training { drop_path_factor(p, index, &key, row) } else { 1.0 }, y);
            }
        });
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let x = x[0].as_slice();
        self.each(pass, y.as_mut_slice(), |first, factor, y| {
            y.iter_mut().zip(&x[first..]).for_each(|(y, x)| *y = x * factor);
        });
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        self.each(pass, g.dy.as_mut_slice(), |_, factor, dy| dy.iter_mut().for_each(|d| *d *= factor));
        Ok(())
    }
}
