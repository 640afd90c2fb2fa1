//! Layer normalisation over the channels of each position.

use net::LayerNorm;

use super::device::Reference;
use super::group_norm::{Set, plan_over};
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(op: &LayerNorm, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    plan_over(Set::Position, op.eps, r)
}
