//! ReLU, tanh, sum of two, copy: one pass over flat memory, whatever the layout (padding is zero and stays zero).

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::{UNIT, mask};
use super::format::Format;
use super::threads::Threads;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};
use crate::simd::simd;

/// Which function.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Relu,
    Tanh,
    Add,
    Copy,
}

/// An element-wise op of known size.
pub(super) struct Plan {
    threads: Threads,
    kind: Kind,
    y: TensorDesc,
}

impl Plan {
    pub fn new(threads: Threads, kind: Kind, r: &Request<'_, Cpu>) -> Self {
        Self { threads, kind, y: r.x[0] }
    }
}

simd! {
    fn relu_run(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = if *x > 0.0 || x.is_nan() { *x } else { 0.0 };
        }
    }
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
        let n = self.y.elems();
        let a = &x[0].as_slice()[..n];
        self.threads.split(&mut y.as_mut_slice()[..n], UNIT, |unit, run| {
            let from = unit * UNIT;
            let a = &a[from..from + run.len()];
            match self.kind {
                Kind::Relu => relu_run(run, a),
                Kind::Tanh => run.iter_mut().zip(a).for_each(|(y, x)| *y = x.tanh()),
                Kind::Add => sum_run(run, a, &x[1].as_slice()[from..]),
                Kind::Copy => run.copy_from_slice(a),
            }
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let n = self.y.elems();
        let y = g.y.as_slice();
        let dy = &mut g.dy.as_mut_slice()[..n];
        match self.kind {
            Kind::Relu => mask(self.threads, dy, &y[..n]),
            Kind::Tanh => self.threads.split(dy, UNIT, |unit, run| {
                run.iter_mut().zip(&y[unit * UNIT..]).for_each(|(d, y)| *d *= 1.0 - y * y);
            }),
            Kind::Copy => {}
            Kind::Add => {
                if let Some(dx) = g.dx {
                    let dy = &*dy;
                    self.threads.split(&mut dx.as_mut_slice()[..n], UNIT, |unit, run| {
                        run.copy_from_slice(&dy[unit * UNIT..][..run.len()]);
                    });
                }
            }
        }
        Ok(())
    }
}
