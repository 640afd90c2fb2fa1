//! A learned token before a sequence.

use net::ClassToken;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: TensorDesc,
    y: TensorDesc,
}

impl Plan {
    /// Calls `f(input index, output index)` for every value that is copied.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let (from, to) = (self.x.shape.plane(), self.y.shape.plane());
        for row in 0..self.x.n * self.x.shape.c {
            (0..from).for_each(|p| f(row * from + p, row * to + 1 + p));
        }
    }
}

pub(super) fn plan(_: &ClassToken, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.c]
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let (token, plane) = (pass.params.get(pass.slots[0]), self.y.shape.plane());
        for (row, value) in (0..self.x.n).flat_map(|_| token).enumerate() {
            y.0[row * plane] = *value;
        }
        self.each(|from, to| y.0[to] = x[0].0[from]);
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let (channels, plane) = (self.x.shape.c, self.y.shape.plane());
        if !pass.frozen {
            let mut sums = vec![0.0; channels];
            for row in 0..self.x.n * channels {
                sums[row % channels] += f64::from(g.dy.0[row * plane]);
            }
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        if let Some(dx) = g.take_dx(0) {
            self.each(|to, from| dx.0[to] = g.dy.0[from]);
        }
        Ok(())
    }
}
