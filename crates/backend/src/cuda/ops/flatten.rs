//! Flattens an image to a vector, as a copy.

use net::{Activation, Flatten};

use super::activation;
use crate::cuda::device::Cuda;
use crate::{Error, PlanRequest, Planned};

pub fn plan(gpu: &Cuda, _: &Flatten, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(gpu, &Activation::Identity, r)
}
