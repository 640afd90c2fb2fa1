//! Selects a single token from a sequence.

use net::Token;

use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::{Error, PlanRequest, Planned};

kernels! {
    /// Copies row `token` from each image.
    token_forward: TokenForward over threads(images * channels) {
        x: [Activation; images * plane * channels],
        y: [Activation; images * channels],
        images: u32,
        plane: u32,
        channels: u32,
        token: u32,
    }

    /// Copies dy to row `token` of each image in dx. The other rows get zero gradients.
    token_backward: TokenBackward over threads(images * plane * channels) {
        dy: [Activation; images * channels],
        dx: [Activation; images * plane * channels],
        images: u32,
        plane: u32,
        channels: u32,
        token: u32,
    }
}

pub fn plan(gpu: &Cuda, op: &Token, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y, token) = (r.x[0], channels_last(r.x[0].n, r.output()?), op.0 as u32);
    let [images, plane, channels] = [x.n, x.shape.plane(), x.shape.c].map(|size| size as u32);
    let traffic = gpu.shared.traffic(2 * y.elems(), x.elems() + y.elems());
    unary::plan(
        gpu,
        [x, y],
        traffic,
        0,
        move |shared, x, y| shared.launch(&TokenForward { x, y, images, plane, channels, token }),
        move |shared, dy, dx| shared.launch(&TokenBackward { dy, dx, images, plane, channels, token }),
    )
}
