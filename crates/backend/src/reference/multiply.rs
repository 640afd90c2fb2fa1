//! Product of a tensor with one factor per image and channel.

use net::Multiply;

use super::conv::store;
use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: TensorDesc,
}

pub(super) fn plan(_: &Multiply, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { x: r.x[0] }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let plane = self.x.shape.plane();
        for i in 0..self.x.elems() {
            y.0[i] = x[0].0[i] * x[1].0[i / plane];
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let plane = self.x.shape.plane();
        let mut sums = vec![0f64; self.x.n * self.x.shape.c];
        for i in 0..self.x.elems() {
            sums[i / plane] += f64::from(g.dy.0[i]) * f64::from(g.x[0].0[i]);
            g.dy.0[i] *= g.x[1].0[i / plane];
        }
        if let Some(ds) = g.take_dx(1) {
            store(&mut ds.0, &sums);
        }
        Ok(())
    }
}
