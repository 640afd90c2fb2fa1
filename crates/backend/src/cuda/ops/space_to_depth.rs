//! Neighbouring pixels as channels.

use net::SpaceToDepth;

use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::{Error, PlanRequest, Planned};

kernels! {
    /// Copies the pixels of each square to the channels of one pixel.
    space_to_depth: SpaceToDepthForward over threads(out) {
        x: [Activation; images * h * w * channels],
        y: [Activation; out],
        images: u32,
        h: u32,
        w: u32,
        channels: u32,
        size: u32,
        out: u64,
    }

    /// Copies the gradients back.
    depth_to_space: SpaceToDepthBackward over threads(images * h * w * channels) {
        dy: [Activation; out],
        dx: [Activation; images * h * w * channels],
        images: u32,
        h: u32,
        w: u32,
        channels: u32,
        size: u32,
        out: u64,
    }
}

pub fn plan(gpu: &Cuda, op: &SpaceToDepth, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y, size) = (r.x[0], channels_last(r.x[0].n, r.output()?), op.0 as u32);
    let [images, h, w, channels] = [x.n, x.shape.h, x.shape.w, x.shape.c].map(|n| n as u32);
    let (out, both) = (y.elems() as u64, x.elems() + y.elems());
    unary::plan(
        gpu,
        [x, y],
        gpu.shared.traffic(both, both),
        0,
        move |shared, x, y| shared.launch(&SpaceToDepthForward { x, y, images, h, w, channels, size, out }),
        move |shared, dy, dx| shared.launch(&SpaceToDepthBackward { dy, dx, images, h, w, channels, size, out }),
    )
}
