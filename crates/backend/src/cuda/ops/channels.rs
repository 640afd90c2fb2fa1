//! Channel ranges and the channel shuffle.

use net::Channels;

use super::bias::rows_of;
use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::{Error, PlanRequest, Planned};

kernels! {
    /// Copies `count` of `width` channels, with `groups` groups interleaved.
    channels_forward: ChannelsForward over threads(rows * count) {
        x: [Activation; rows * width],
        y: [Activation; rows * count],
        rows: u32,
        width: u32,
        first: u32,
        count: u32,
        groups: u32,
    }

    /// Copies the gradients of y to the channels of dx that y was copied from. The other channels get zero gradients.
    channels_backward: ChannelsBackward over threads(rows * width) {
        dy: [Activation; rows * count],
        dx: [Activation; rows * width],
        rows: u32,
        width: u32,
        first: u32,
        count: u32,
        groups: u32,
    }
}

pub fn plan(gpu: &Cuda, op: &Channels, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    let rows = rows_of(x.n * x.shape.plane(), r.name)?;
    let [width, count, first, groups] = [x.shape.c, y.shape.c, op.first, op.groups].map(|n| n as u32);
    unary::plan(
        gpu,
        [x, y],
        gpu.shared.traffic(2 * y.elems(), x.elems() + y.elems()),
        0,
        move |shared, x, y| shared.launch(&ChannelsForward { x, y, rows, width, first, count, groups }),
        move |shared, dy, dx| shared.launch(&ChannelsBackward { dy, dx, rows, width, first, count, groups }),
    )
}
