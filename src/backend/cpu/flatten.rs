//! From an image to a vector: a copy.

use super::activation;
use super::device::Cpu;
use crate::backend::op::{Activation, Flatten};
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Flatten, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, &Activation::Identity, r)
}
