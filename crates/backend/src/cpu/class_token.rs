//! A learned token before a sequence.

use net::ClassToken;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::layout::Format;
use super::relayout;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(cpu: &Cpu, _: &ClassToken, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    Ok(Box::new(Plan { threads: cpu.threads, x, y: relayout::output_layout(cpu, &x, r.output()?) }))
}

impl Plan {
    /// Returns the number of elements per channel block, in the input and in the output.
    fn rows(&self) -> [usize; 2] {
        [self.x, self.y].map(|desc| desc.shape.plane() * desc.block)
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c)]
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let ([from, to], block, blocks) = (self.rows(), self.y.block, self.y.blocks());
        let (token, x) = (pass.params.get(pass.slots[0]), x[0].as_slice());
        self.threads.each_item(&mut y.as_mut_slice()[..self.y.elems()], to, |i, y| {
            let (class, rest) = y.split_at_mut(block);
            for (lane, value) in class.iter_mut().enumerate() {
                *value = token.get(i % blocks * block + lane).copied().unwrap_or(0.0);
            }
            rest.copy_from_slice(&x[i * from..][..from]);
        });
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let ([to, from], block) = (self.rows(), self.y.block);
        let dx = g.take_dx(0);
        let dy = g.dy.as_slice();
        if !pass.frozen {
            for (c, gradient) in g.dparams.get_mut(pass.slots[0])[..self.y.shape.c].iter_mut().enumerate() {
                let samples = (0..self.y.n).map(|n| f64::from(dy[n * self.y.sample_elems() + self.y.at(c, 0)]));
                *gradient = samples.sum::<f64>() as f32;
            }
        }
        if let Some(dx) = dx {
            self.threads.each_item(&mut dx.as_mut_slice()[..self.x.elems()], to, |i, dx| {
                dx.copy_from_slice(&dy[i * from + block..][..to]);
            });
        }
        Ok(())
    }
}
