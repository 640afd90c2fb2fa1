//! Hyperbolic tangent.

use super::activation;
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::slice::Activation;
use crate::backend::cuda::kernels::kernel::kernels;
use crate::backend::op::Tanh;
use crate::backend::{Error, PlanRequest, Planned};

kernels! {
    /// y = tanh(x)
    tanh_forward: TanhForward over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    /// dy = dy (1 - y^2)
    tanh_backward: TanhBackward over threads(n.div_ceil(4)) {
        y: [Activation; n], dy: [Activation; n], n: u64,
    }
}

/// Plans the op.
pub fn plan(gpu: &Cuda, _: &Tanh, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    activation::plan(
        gpu,
        |gpu, t| gpu.launch(&TanhForward { x: t.x, y: t.y, n: t.n }),
        |gpu, t, dy| gpu.launch(&TanhBackward { y: t.y, dy, n: t.n }),
        r,
    )
}
