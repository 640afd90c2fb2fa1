//! Selects a single token from a sequence.

use std::rc::Rc;

use net::Token;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

struct Plan {
    shared: Rc<Shared>,
    token: u32,
    x: TensorDesc,
    y: TensorDesc,
}

pub fn plan(gpu: &Cuda, op: &Token, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    Ok(Box::new(Plan { shared: gpu.shared.clone(), token: op.0 as u32, x, y }))
}

impl Plan {
    /// Returns the number of images, positions in the input, and channels.
    fn sizes(&self) -> [u32; 3] {
        [self.x.n, self.x.shape.plane(), self.x.shape.c].map(|size| size as u32)
    }
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
        let (shared, [images, plane, channels], token) = (&self.shared, self.sizes(), self.token);
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        shared.launch(&TokenForward { x, y, images, plane, channels, token })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (shared, [images, plane, channels], token) = (&self.shared, self.sizes(), self.token);
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        shared.launch(&TokenBackward { dy, dx, images, plane, channels, token })
    }
}
