//! A learned token before a sequence.

use std::rc::Rc;

use net::ClassToken;

use super::position_embedding::SumImages;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::{Format, channels_last};
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// Copies the token to the first row of each output image, and the input image's rows to the rows after it.
    class_token_forward: ClassTokenForward over threads(images * (plane + 1) * channels) {
        x: [Activation; images * plane * channels],
        token: [f32; channels],
        y: [Activation; images * (plane + 1) * channels],
        images: u32,
        plane: u32,
        channels: u32,
    }

    /// Copies the gradients of each image's rows to dx. The token's gradient is not part of dx.
    class_token_backward: ClassTokenBackward over threads(images * plane * channels) {
        dy: [Activation; images * (plane + 1) * channels],
        dx: [Activation; images * plane * channels],
        images: u32,
        plane: u32,
        channels: u32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    y: TensorDesc,
}

pub fn plan(gpu: &Cuda, _: &ClassToken, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x: r.x[0], y: channels_last(r.x[0].n, r.output()?) }))
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

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c)]
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let [x, y] = [self.x.elems(), self.y.elems()];
        Some(self.shared.traffic(x + y, x + y))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, [images, plane, channels]) = (&self.shared, self.sizes());
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let token = pass.params.at(pass.slots[0])?;
        shared.launch(&ClassTokenForward { x, token, y, images, plane, channels })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, [images, plane, channels]) = (&self.shared, self.sizes());
        let dx = g.take_dx(0);
        let dy = shared.holds(g.dy, self.y.elems())?;
        if !pass.frozen {
            let (gradient, stride) = (g.dparams.at(pass.slots[0])?, (plane + 1) * channels);
            shared.launch(&SumImages { dy, gradient, images, stride, count: channels })?;
        }
        let Some(dx) = dx else { return Ok(()) };
        let dx = shared.holds(dx, self.x.elems())?;
        shared.launch(&ClassTokenBackward { dy, dx, images, plane, channels })
    }
}
