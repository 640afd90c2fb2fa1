//! A learned token before a sequence.

use net::ClassToken;

use super::position_embedding::SumImages;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::{Format, channels_last};
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

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

pub fn plan(gpu: &Cuda, _: &ClassToken, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher) = (gpu.shared.clone(), gpu.shared.clone());
    let (x_desc, y_desc) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    let [x_elems, y_elems] = [x_desc, y_desc].map(|desc| desc.elems());
    let [images, plane, channels] = [x_desc.n, x_desc.shape.plane(), x_desc.shape.c].map(|size| size as u32);
    let traffic = Some(shared.traffic(x_elems + y_elems, x_elems + y_elems));
    let forward = move |pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (x, y) = (launcher.holds(x[0], x_elems)?, launcher.holds(y, y_elems)?);
        launcher.launch(&ClassTokenForward { x, token: pass.params.at(pass.slots[0])?, y, images, plane, channels })
    };
    let backward = move |pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>| {
        let dx = g.take_dx(0);
        let dy = shared.holds(g.dy, y_elems)?;
        if !pass.frozen {
            let (gradient, stride) = (g.dparams.at(pass.slots[0])?, (plane + 1) * channels);
            shared.launch(&SumImages { dy, gradient, images, stride, count: channels })?;
        }
        let Some(dx) = dx else { return Ok(()) };
        let dx = shared.holds(dx, x_elems)?;
        shared.launch(&ClassTokenBackward { dy, dx, images, plane, channels })
    };
    let formats = vec![Format::Plain(x_desc.shape.c)];
    let plan = ClosurePlan::new(y_desc, Keeps::NOTHING, forward, backward);
    Ok(Box::new(ClosurePlan { formats, traffic, ..plan }))
}
