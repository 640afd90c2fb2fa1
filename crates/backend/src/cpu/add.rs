//! Sum of two tensors.

use base::simd;
use net::Add;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

simd! {
    fn sum_run(y: &mut [f32], a: &[f32], b: &[f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

pub(super) fn plan(cpu: &Cpu, _: &Add, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, n) = (cpu.threads, r.x[0].elems());
    let forward = move |_: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let (a, b) = (x[0].as_slice(), x[1].as_slice());
        threads.split(&mut y.as_mut_slice()[..n], UNIT, |unit, run| {
            let from = unit * UNIT;
            sum_run(run, &a[from..from + run.len()], &b[from..]);
        });
        Ok(())
    };
    elementwise(r.x[0], Keeps::NOTHING, None, forward, move |_, mut g: Gradients<'_, Cpu>| {
        let Some(dx) = g.take_dx(1) else { return Ok(()) };
        threads.split_both(&mut dx.as_mut_slice()[..n], g.dy.as_slice(), UNIT, <[f32]>::copy_from_slice);
        Ok(())
    })
}
