//! Neighbouring pixels as channels.

use std::rc::Rc;

use net::SpaceToDepth;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    y: TensorDesc,
    size: u32,
}

pub fn plan(gpu: &Cuda, op: &SpaceToDepth, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x, y, size: op.0 as u32 }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let both = self.x.elems() + self.y.elems();
        Some(self.shared.traffic(both, both))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, shape, out) = (&self.shared, self.x.shape, self.y.elems());
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, out)?);
        let [images, h, w, channels] = [self.x.n, shape.h, shape.w, shape.c].map(|n| n as u32);
        shared.launch(&SpaceToDepthForward { x, y, images, h, w, channels, size: self.size, out: out as u64 })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (shared, shape, out) = (&self.shared, self.x.shape, self.y.elems());
        let (dy, dx) = (shared.holds(g.dy, out)?, shared.holds(dx, self.x.elems())?);
        let [images, h, w, channels] = [self.x.n, shape.h, shape.w, shape.c].map(|n| n as u32);
        shared.launch(&SpaceToDepthBackward { dy, dx, images, h, w, channels, size: self.size, out: out as u64 })
    }
}
