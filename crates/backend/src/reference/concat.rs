//! Concatenation along the channels.

use net::Concat;

use super::device::{HostBuf, Reference};
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: Vec<TensorDesc>,
    y: TensorDesc,
}

impl Plan {
    /// Calls `f(input, index in this input, index in y)` for every value.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        for n in 0..self.y.n {
            let mut to = n * self.y.shape.elems();
            for (input, x) in self.x.iter().enumerate() {
                for i in 0..x.shape.elems() {
                    f(input, n * x.shape.elems() + i, to);
                    to += 1;
                }
            }
        }
    }
}

pub(super) fn plan(_: &Concat, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { x: r.x.to_vec(), y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.each(|input, from, to| y.0[to] = x[input].0[from]);
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        self.each(|input, to, from| {
            if let Some(dx) = &mut g.dx[input] {
                dx.0[to] = g.dy.0[from];
            }
        });
        Ok(())
    }
}
