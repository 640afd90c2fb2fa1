//! Convolutions: Winograd's where it is faster, else oneDNN's.

use super::device::Cpu;
use super::{affine, winograd};
use crate::backend::op::Conv;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    match winograd::plan(cpu, r, op) {
        Some(plan) => plan,
        None => Ok(Box::new(affine::Plan::conv(cpu, r, op)?)),
    }
}
