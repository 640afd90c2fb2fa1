//! Product of a tensor with one factor per image and channel.

use net::Multiply;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// y = x s
    multiply_forward: MultiplyForward over threads((n * plane * channels).div_ceil(4)) {
        x: [Activation; n * plane * channels],
        s: [Activation; n * channels],
        y: [Activation; n * plane * channels],
        n: u32,
        plane: u32,
        channels: u32,
    }

    /// dy = dy s, ds = sum of dy x over the positions
    multiply_backward: MultiplyBackward over blocks(n * channels.div_ceil(32)) {
        x: [Activation; n * plane * channels],
        s: [Activation; n * channels],
        dy: [Activation; n * plane * channels],
        ds: (null or [Activation; n * channels]),
        n: u32,
        plane: u32,
        channels: u32,
    }
}

pub fn plan(gpu: &Cuda, _: &Multiply, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, desc) = (gpu.shared.clone(), r.x[0]);
    let (elems, factors) = (desc.elems(), desc.n * desc.shape.c);
    let [n, plane, channels] = [desc.n, desc.shape.plane(), desc.shape.c].map(|size| size as u32);
    let (traffic, launcher) = (shared.traffic(2 * elems, 3 * elems), shared.clone());
    let forward = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (s, y) = (launcher.holds(x[1], factors)?, launcher.holds(y, elems)?);
        launcher.launch(&MultiplyForward { x: launcher.holds(x[0], elems)?, s, y, n, plane, channels })
    };
    elementwise(desc, Keeps::INPUTS, Some(traffic), forward, move |_, g: Gradients<'_, Cuda>| {
        let (x, s) = (shared.holds(g.x[0], elems)?, shared.holds(g.x[1], factors)?);
        let ds = g.dx[1].as_ref().map(|ds| shared.holds(ds, factors)).transpose()?;
        shared.launch(&MultiplyBackward { x, s, dy: shared.holds(g.dy, elems)?, ds, n, plane, channels })
    })
}
