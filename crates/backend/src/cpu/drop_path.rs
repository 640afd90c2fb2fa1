//! Stochastic depth: a random factor per sample.

use net::DropPath;

use super::buf::AlignedBuf;
use super::device::Cpu;
use crate::draws::drop_path_factor;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(cpu: &Cpu, op: &DropPath, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, p, index, sample, n) = (cpu.threads, op.0, r.index, r.x[0].sample_elems(), r.x[0].elems());
    // Calls `f(factor, sample, the sample's elements of y)` for all samples of the batch.
    let each = move |pass: &Pass<'_, Cpu>, y: &mut AlignedBuf, f: &(dyn Fn(f32, usize, &mut [f32]) + Sync)| {
        let (training, key) = (pass.training, pass.key);
        threads.each_item(&mut y.as_mut_slice()[..n], sample, |row, y| {
            f(if training { drop_path_factor(p, index, &key, row) } else { 1.0 }, row, y);
        });
        Ok(())
    };
    let forward = move |pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let x = x[0].as_slice();
        each(pass, y, &|factor, row, y| {
            y.iter_mut().zip(&x[row * sample..]).for_each(|(y, x)| *y = x * factor);
        })
    };
    elementwise(r.x[0], Keeps::NOTHING, None, forward, move |pass, g: Gradients<'_, Cpu>| {
        each(pass, g.dy, &|factor, _, dy| dy.iter_mut().for_each(|d| *d *= factor))
    })
}
