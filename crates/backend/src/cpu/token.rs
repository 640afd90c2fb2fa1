//! Selects a single token from a sequence.

use net::Token;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::relayout;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    token: usize,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(cpu: &Cpu, op: &Token, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    Ok(Box::new(Plan { token: op.0, x, y: relayout::output_layout(cpu, &x, r.output()?) }))
}

impl Plan {
    /// Returns the index in x where a channel block of the token begins. Blocks are counted over all samples.
    fn at(&self, block: usize) -> usize {
        (block * self.x.shape.plane() + self.token) * self.x.block
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (x, width) = (x[0].as_slice(), self.x.block);
        for (block, y) in y.as_mut_slice()[..self.y.elems()].chunks_exact_mut(width).enumerate() {
            y.copy_from_slice(&x[self.at(block)..][..width]);
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (dx, width) = (dx.as_mut_slice(), self.x.block);
        dx[..self.x.elems()].fill(0.0);
        for (block, dy) in g.dy.as_slice()[..self.y.elems()].chunks_exact(width).enumerate() {
            dx[self.at(block)..][..width].copy_from_slice(dy);
        }
        Ok(())
    }
}
