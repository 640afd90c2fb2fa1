//! Functions of one element: the plan that they share, and ReLU, which other ops apply in their own pass.

use super::device::Reference;
use super::host_buf::HostBuf;
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// A function of one element, of known size.
struct Plan {
    forward: fn(f32) -> f32,
    backward: fn(f32, f32, f32) -> f32,
    y: TensorDesc,
}

/// Plans `y = forward(x)` and `dx = backward(dy, x, y)`.
pub(super) fn plan(
    forward: fn(f32) -> f32,
    backward: fn(f32, f32, f32) -> f32,
    r: &PlanRequest<'_, Reference>,
) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { forward, backward, y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

/// max(v, 0), but NaN stays NaN: a diverged network must not look healthy.
pub(super) fn relu(v: f32) -> f32 {
    if v <= 0.0 { 0.0 } else { v }
}

/// Zeroes the gradient where ReLU gave zero.
pub(super) fn mask(dy: &mut [f32], y: &[f32]) {
    for (d, y) in dy.iter_mut().zip(y) {
        if *y <= 0.0 {
            *d = 0.0;
        }
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "loops".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        for i in 0..self.y.elems() {
            y.0[i] = (self.forward)(x[0].0[i]);
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        for i in 0..self.y.elems() {
            g.dy.0[i] = (self.backward)(g.dy.0[i], g.x[0].0[i], g.y.0[i]);
        }
        Ok(())
    }
}
