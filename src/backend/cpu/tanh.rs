//! Hyperbolic tangent.

use super::activation;
use super::device::Cpu;
use crate::backend::op::Tanh;
use crate::backend::{Error, PlanRequest, Planned};

fn forward(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = x.tanh());
}

fn backward(dy: &mut [f32], _: &[f32], y: &[f32]) {
    dy.iter_mut().zip(y).for_each(|(d, y)| *d *= 1.0 - y * y);
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Tanh, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, forward, backward, r)
}
