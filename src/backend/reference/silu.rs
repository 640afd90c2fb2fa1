//! SiLU in f64.

use super::activation;
use super::device::Reference;
use crate::backend::op::Silu;
use crate::backend::{Error, PlanRequest, Planned};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Plans the op. With s = sigmoid(x), dy/dx = s (1 + x (1 - s)).
pub(super) fn plan(_: &Silu, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let forward = |x: f32| (f64::from(x) * sigmoid(x.into())) as f32;
    let backward = |dy: f32, x: f32, _: f32| {
        let (x, s) = (f64::from(x), sigmoid(x.into()));
        (f64::from(dy) * s * (1.0 + x * (1.0 - s))) as f32
    };
    activation::plan(forward, backward, r)
}
