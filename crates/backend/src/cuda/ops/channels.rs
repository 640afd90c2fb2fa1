//! Channel ranges and the channel shuffle.

use std::rc::Rc;

use net::Channels;

use super::bias::rows_of;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    y: TensorDesc,
    /// Number of pixels in all images together.
    rows: u32,
    first: u32,
    groups: u32,
}

pub fn plan(gpu: &Cuda, op: &Channels, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    let rows = rows_of(x.n * x.shape.plane(), r.name)?;
    let (first, groups) = (op.first as u32, op.groups as u32);
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x, y, rows, first, groups }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let [x, y] = [self.x.elems(), self.y.elems()];
        Some(self.shared.traffic(2 * y, x + y))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let Self { shared, rows, first, groups, .. } = self;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let (width, count) = (self.x.shape.c as u32, self.y.shape.c as u32);
        shared.launch(&ChannelsForward { x, y, rows: *rows, width, first: *first, count, groups: *groups })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let Self { shared, rows, first, groups, .. } = self;
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        let (width, count) = (self.x.shape.c as u32, self.y.shape.c as u32);
        shared.launch(&ChannelsBackward { dy, dx, rows: *rows, width, first: *first, count, groups: *groups })
    }
}
