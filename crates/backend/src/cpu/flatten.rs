//! Flattens an image to a vector with a copy.

use net::{Activation, Flatten};

use super::activation;
use super::device::Cpu;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(cpu: &Cpu, _: &Flatten, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, &Activation::Identity, r)
}
