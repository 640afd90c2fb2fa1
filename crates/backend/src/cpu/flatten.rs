//! From an image to a vector: a copy.

use net::{Activation, Flatten};

use super::activation;
use super::device::Cpu;
use crate::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Flatten, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, &Activation::Identity, r)
}
