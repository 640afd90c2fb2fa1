//! Multiplies each channel by a learned factor.

use net::LayerScale;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: TensorDesc,
}

pub(super) fn plan(_: &LayerScale, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { x: r.x[0] }))
}

impl Plan {
    fn channel(&self, i: usize) -> usize {
        i / self.x.shape.plane() % self.x.shape.c
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.c]
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let factors = pass.params.get(pass.slots[0]);
        for i in 0..self.x.elems() {
            y.0[i] = x[0].0[i] * factors[self.channel(i)];
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        let factors = pass.params.get(pass.slots[0]);
        let mut sums = vec![0f64; self.x.shape.c];
        for i in 0..self.x.elems() {
            sums[self.channel(i)] += f64::from(g.dy.0[i]) * f64::from(g.x[0].0[i]);
            g.dy.0[i] *= factors[self.channel(i)];
        }
        if !pass.frozen {
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        Ok(())
    }
}
