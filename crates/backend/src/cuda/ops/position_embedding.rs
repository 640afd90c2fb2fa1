//! A learned vector for each position.

use net::PositionEmbedding;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// y = x + vectors, which repeat for each image
    add_vectors: AddVectors over threads(images * period) {
        x: [Activation; images * period],
        vectors: [f32; period],
        y: [Activation; images * period],
        images: u32,
        period: u32,
    }

    /// Each image has `stride` values. Sums the first `count` of them over the images.
    sum_images: SumImages over threads(count) {
        dy: [Activation; images.saturating_sub(1) * stride + count],
        gradient: [f32; count],
        images: u32,
        stride: u32,
        count: u32,
    }
}

pub fn plan(gpu: &Cuda, _: &PositionEmbedding, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher, desc, elems) = (gpu.shared.clone(), gpu.shared.clone(), r.x[0], r.x[0].elems());
    let [images, period] = [desc.n, desc.shape.elems()].map(|size| size as u32);
    let traffic = Some(shared.traffic(2 * elems, elems));
    let forward = move |pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (x, y) = (launcher.holds(x[0], elems)?, launcher.holds(y, elems)?);
        launcher.launch(&AddVectors { x, vectors: pass.params.at(pass.slots[0])?, y, images, period })
    };
    let backward = move |pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>| {
        if pass.frozen {
            return Ok(());
        }
        let (dy, gradient) = (shared.holds(g.dy, elems)?, g.dparams.at(pass.slots[0])?);
        shared.launch(&SumImages { dy, gradient, images, stride: period, count: period })
    };
    let formats = vec![Format::Plain(desc.shape.elems())];
    let plan = ClosurePlan::new(desc, Keeps::NOTHING, forward, backward);
    Ok(Box::new(ClosurePlan { formats, in_place: true, traffic, ..plan }))
}
