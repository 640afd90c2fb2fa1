//! The parameter-free shortcut of a residual block: every stride-th pixel, with zero channels before and after.

use net::Shortcut;

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

pub(super) struct Plan {
    pub op: Shortcut,
    pub x: TensorDesc,
    pub y: TensorDesc,
}

impl Plan {
    /// Calls `f(input index, output index)` for every value that is copied.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let (x, y, s) = (self.x.shape, self.y.shape, self.op.stride);
        let before = self.op.before(x);
        for n in 0..self.x.n {
            for c in 0..x.c {
                for p in 0..y.plane() {
                    let (h, w) = (p / y.w * s, p % y.w * s);
                    f(((n * x.c + c) * x.h + h) * x.w + w, (n * y.c + c + before) * y.plane() + p);
                }
            }
        }
    }
}

pub(super) fn plan(op: &Shortcut, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: *op, x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        y.0[..self.y.elems()].fill(0.0);
        self.each(|from, to| y.0[to] = x[0].0[from]);
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        dx.0[..self.x.elems()].fill(0.0);
        self.each(|from, to| dx.0[from] = g.dy.0[to]);
        Ok(())
    }
}
