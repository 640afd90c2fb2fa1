//! Channel ranges and the channel shuffle.

use net::Channels;

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    op: Channels,
    x: TensorDesc,
    y: TensorDesc,
}

impl Plan {
    /// Calls `f(input index, output index)` for every value that is copied.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let (x, y, plane) = (self.x.shape, self.y.shape, self.x.shape.plane());
        for n in 0..self.x.n {
            for c in 0..y.c {
                for p in 0..plane {
                    f((n * x.c + self.op.source(c)) * plane + p, (n * y.c + c) * plane + p);
                }
            }
        }
    }
}

pub(super) fn plan(op: &Channels, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: *op, x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.each(|from, to| y.0[to] = x[0].0[from]);
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        dx.0[..self.x.elems()].fill(0.0);
        self.each(|to, from| dx.0[to] = g.dy.0[from]);
        Ok(())
    }
}
