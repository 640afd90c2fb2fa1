//! SiLU.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::slice::Activation;
use crate::backend::cuda::kernels::kernel::kernels;
use crate::backend::op::Silu;
use crate::backend::{Error, PlanRequest, Planned};

kernels! {
    /// y = x sigmoid(x)
    silu_forward: SiluForward over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    /// dy = dy s (1 + x (1 - s)), s = sigmoid(x)
    silu_backward: SiluBackward over threads(n.div_ceil(4)) {
        x: [Activation; n], dy: [Activation; n], n: u64,
    }
}

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Silu, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(
        gpu,
        |gpu, t| gpu.launch(&SiluForward { x: t.x, y: t.y, n: t.n }),
        |gpu, t, dy| gpu.launch(&SiluBackward { x: t.x, dy, n: t.n }),
        r,
    )
}
