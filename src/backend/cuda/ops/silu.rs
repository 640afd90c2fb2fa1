//! SiLU.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::kernels::elementwise::{SiluBackward, SiluForward};
use crate::backend::op::Silu;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Silu, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(
        gpu,
        |gpu, t| gpu.launch(&SiluForward { x: t.x, y: t.y, n: t.n }),
        |gpu, t, dy| gpu.launch(&SiluBackward { x: t.x, dy, n: t.n }),
        r,
    )
}
