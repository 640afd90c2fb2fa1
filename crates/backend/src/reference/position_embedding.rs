//! A learned vector for each position.

use net::PositionEmbedding;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: TensorDesc,
}

pub(super) fn plan(
    _: &PositionEmbedding,
    r: &PlanRequest<'_, Reference>,
) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { x: r.x[0] }))
}

impl Plan {
    /// Returns the index of the parameter for an element.
    fn parameter(&self, i: usize) -> usize {
        let (plane, channels) = (self.x.shape.plane(), self.x.shape.c);
        i % plane * channels + i / plane % channels
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.elems()]
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let vectors = pass.params.get(pass.slots[0]);
        for i in 0..self.x.elems() {
            y.0[i] = x[0].0[i] + vectors[self.parameter(i)];
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        if !pass.frozen {
            let mut sums = vec![0.0; self.x.shape.elems()];
            for i in 0..self.x.elems() {
                sums[self.parameter(i)] += f64::from(g.dy.0[i]);
            }
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        Ok(())
    }
}
