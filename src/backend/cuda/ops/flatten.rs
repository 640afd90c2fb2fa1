//! From an image to a vector: a copy.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::kernels::elementwise::CopyTensor;
use crate::backend::op::Flatten;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Flatten, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(gpu, |gpu, t| gpu.launch(&CopyTensor { x: t.x, y: t.y, n: t.n }), |_, _, _| Ok(()), r)
}
