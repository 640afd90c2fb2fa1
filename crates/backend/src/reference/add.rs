//! Sum of two tensors.

use net::Add;

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    y: TensorDesc,
}

pub(super) fn plan(_: &Add, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        for i in 0..self.y.elems() {
            y.0[i] = x[0].0[i] + x[1].0[i];
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        if let Some(dx) = g.take_dx(1) {
            let n = self.y.elems();
            dx.0[..n].copy_from_slice(&g.dy.0[..n]);
        }
        Ok(())
    }
}
