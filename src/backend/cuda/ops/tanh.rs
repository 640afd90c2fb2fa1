//! Hyperbolic tangent.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::kernels::elementwise::{TanhBackward, TanhForward};
use crate::backend::op::Tanh;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Tanh, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(
        gpu,
        |gpu, t| gpu.launch(&TanhForward { x: t.x, y: t.y, n: t.n }),
        |gpu, t, dy| gpu.launch(&TanhBackward { y: t.y, dy, n: t.n }),
        r,
    )
}
