//! ReLU.

use super::activation::{self, relu};
use super::device::Reference;
use crate::backend::op::Relu;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(_: &Relu, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    activation::plan(relu, |dy, _, y| if y <= 0.0 { 0.0 } else { dy }, r)
}
