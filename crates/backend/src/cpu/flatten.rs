//! From an image to a vector: a copy.

use net::{Activation, Flatten};

use crate::{Error, PlanRequest, Planned};
use super::activation;
use super::device::Cpu;

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Flatten, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, &Activation::Identity, r)
}
