//! Inverted dropout.

use net::Dropout;

use super::device::{HostBuf, Reference};
use crate::draws::dropout_factors;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// Dropout with the factors of its last batch.
pub(super) struct Plan {
    pub p: f32,
    pub index: u16,
    pub x: TensorDesc,
    pub factors: Vec<f32>,
}

pub(super) fn plan(op: &Dropout, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { p: op.0, index: r.index, x: r.x[0], factors: Vec::new() }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn state_bytes(&self) -> usize {
        self.x.elems() * 4
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.factors.resize(self.x.elems(), 1.0);
        if pass.training {
            for (row, factors) in self.factors.chunks_mut(self.x.shape.elems()).enumerate() {
                dropout_factors(self.p, self.index, &pass.key, row, factors);
            }
        } else {
            self.factors.fill(1.0);
        }
        for ((y, x), k) in y.0.iter_mut().zip(&x[0].0).zip(&self.factors) {
            *y = x * k;
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        for (d, k) in g.dy.0.iter_mut().zip(&self.factors) {
            *d *= k;
        }
        Ok(())
    }
}
