//! ReLU.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::kernels::elementwise::{ReluBackward, ReluForward};
use crate::backend::op::Relu;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Relu, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(
        gpu,
        |gpu, t| gpu.launch(&ReluForward { x: t.x, y: t.y, n: t.n }),
        |gpu, t, dy| gpu.launch(&ReluBackward { y: t.y, dy, n: t.n }),
        r,
    )
}
