//! Stochastic depth.

use net::DropPath;

use super::device::HostBuf;
use super::device::Reference;
use crate::draws::drop_path_factor;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    p: f32,
    index: u16,
    x: TensorDesc,
}

pub(super) fn plan(op: &DropPath, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { p: op.0, index: r.index, x: r.x[0] }))
}

impl Plan {
    fn factor(&self, pass: &Pass<'_, Reference>, row: usize) -> f32 {
        if pass.training { drop_path_factor(self.p, self.index, &pass.key, row) } else { 1.0 }
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        for i in 0..self.x.elems() {
            y.0[i] = x[0].0[i] * self.factor(pass, i / self.x.shape.elems());
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        for i in 0..self.x.elems() {
            g.dy.0[i] *= self.factor(pass, i / self.x.shape.elems());
        }
        Ok(())
    }
}
