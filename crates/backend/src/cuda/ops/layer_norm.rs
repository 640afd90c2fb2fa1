//! Layer normalisation over each position's channels, which are adjacent in memory.

use net::LayerNorm;

use super::group_norm::plan_over;
use crate::cuda::device::Cuda;
use crate::{Error, PlanRequest, Planned};

pub fn plan(gpu: &Cuda, op: &LayerNorm, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    plan_over(gpu, [1, 1], op.eps, r)
}
