//! Neighbouring pixels as channels.

use net::{PixelChannel, SpaceToDepth};

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    op: SpaceToDepth,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(op: &SpaceToDepth, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: *op, x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Plan {
    /// Calls `f(input index, output index)` for every output. The input index is `None` beyond the image.
    fn each(&self, mut f: impl FnMut(Option<usize>, usize)) {
        let (x, y) = (self.x.shape, self.y.shape);
        for n in 0..self.x.n {
            for i in 0..y.elems() {
                let to = PixelChannel { channel: i / y.plane(), position: i % y.plane() };
                let from = self.op.source(x, to);
                f(from.map(|from| (n * x.c + from.channel) * x.plane() + from.position), n * y.elems() + i);
            }
        }
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.each(|from, to| y.0[to] = from.map_or(0.0, |from| x[0].0[from]));
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        self.each(|to, from| {
            if let Some(to) = to {
                dx.0[to] = g.dy.0[from];
            }
        });
        Ok(())
    }
}
