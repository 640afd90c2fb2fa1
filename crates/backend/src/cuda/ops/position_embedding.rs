//! A learned vector for each position.

use std::rc::Rc;

use net::PositionEmbedding;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, _: &PositionEmbedding, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x: r.x[0] }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.elems())]
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(2 * n, n))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let (images, period) = (self.x.n as u32, self.x.shape.elems() as u32);
        shared.launch(&AddVectors { x, vectors: pass.params.at(pass.slots[0])?, y, images, period })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        if pass.frozen {
            return Ok(());
        }
        let (images, period) = (self.x.n as u32, self.x.shape.elems() as u32);
        let (dy, gradient) = (self.shared.holds(g.dy, self.x.elems())?, g.dparams.at(pass.slots[0])?);
        self.shared.launch(&SumImages { dy, gradient, images, stride: period, count: period })
    }
}
