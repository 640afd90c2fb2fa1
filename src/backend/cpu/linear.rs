//! Linear layers: oneDNN's.

use super::affine;
use super::device::Cpu;
use crate::backend::op::Linear;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Linear, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(affine::Plan::linear(cpu, r, op)?))
}
