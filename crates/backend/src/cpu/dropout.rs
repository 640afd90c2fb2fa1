//! Inverted dropout for any layout. It uses the same random draws as the reference backend, so both drop the same
//! elements.

use net::Dropout;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use super::threads::Threads;
use crate::draws::dropout_factors;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Dropout planned for a fixed batch size, with the factors of its last batch.
struct Plan {
    threads: Threads,
    p: f32,
    index: u16,
    x: TensorDesc,
    factors: AlignedBuf,
}

impl Plan {
    fn draw(&mut self, key: &crate::DrawKey<'_>) {
        let (x, sample, p, index) = (self.x, self.x.sample_elems(), self.p, self.index);
        self.threads.split(self.factors.as_mut_slice(), sample, |first, run| {
            let mut plain = vec![0.0; x.shape.elems()];
            let one = TensorDesc { n: 1, ..x };
            for (i, row) in run.chunks_mut(sample).enumerate() {
                dropout_factors(p, index, key, first + i, &mut plain);
                one.from_plain(&plain, row);
            }
        });
    }
}

pub(super) fn plan(cpu: &Cpu, op: &Dropout, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let factors = AlignedBuf::zeroed(if r.train { r.x[0].elems() } else { 0 }, r.name)?;
    Ok(Box::new(Plan { threads: cpu.threads, p: op.0, index: r.index, x: r.x[0], factors }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn state_bytes(&self) -> usize {
        self.factors.as_slice().len() * 4
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let n = self.x.elems();
        let (x, y) = (&x[0].as_slice()[..n], &mut y.as_mut_slice()[..n]);
        if !pass.training {
            y.copy_from_slice(x);
            return Ok(());
        }
        self.draw(&pass.key);
        let factors = self.factors.as_slice();
        self.threads.split(y, 1, |first, y| {
            for ((y, x), k) in y.iter_mut().zip(&x[first..]).zip(&factors[first..]) {
                *y = x * k;
            }
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let dy = &mut g.dy.as_mut_slice()[..self.x.elems()];
        self.threads.split_both(dy, self.factors.as_slice(), UNIT, |dy, factors| {
            dy.iter_mut().zip(factors).for_each(|(d, k)| *d *= k);
        });
        Ok(())
    }
}
