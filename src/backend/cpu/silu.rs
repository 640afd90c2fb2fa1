//! SiLU.

use super::activation;
use super::device::Cpu;
use crate::backend::op::Silu;
use crate::backend::{Error, PlanRequest, Planned};

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn forward(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * sigmoid(x));
}

/// With s = sigmoid(x), dy/dx = s (1 + x (1 - s)).
fn backward(dy: &mut [f32], x: &[f32], _: &[f32]) {
    for (d, &x) in dy.iter_mut().zip(x) {
        let s = sigmoid(x);
        *d *= s * (1.0 + x * (1.0 - s));
    }
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Silu, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, forward, backward, r)
}
