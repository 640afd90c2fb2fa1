//! From an image to a vector: a copy.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::op::{Activation, Flatten};
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Flatten, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(gpu, &Activation::Identity, r)
}
