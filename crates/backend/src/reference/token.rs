//! Selects a single token from a sequence.

use net::Token;

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    token: usize,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(op: &Token, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { token: op.0, x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        for row in 0..self.y.elems() {
            y.0[row] = x[0].0[row * self.x.shape.plane() + self.token];
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        dx.0[..self.x.elems()].fill(0.0);
        for row in 0..self.y.elems() {
            dx.0[row * self.x.shape.plane() + self.token] = g.dy.0[row];
        }
        Ok(())
    }
}
