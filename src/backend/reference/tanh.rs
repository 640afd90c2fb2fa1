//! Hyperbolic tangent.

use super::activation;
use super::device::Reference;
use crate::backend::op::Tanh;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(_: &Tanh, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    activation::plan(f32::tanh, |dy, _, y| dy * (1.0 - y * y), r)
}
