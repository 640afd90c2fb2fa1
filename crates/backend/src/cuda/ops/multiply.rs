//! Product of a tensor with one factor per image and channel.

use std::rc::Rc;

use net::Multiply;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// y = x s
    multiply_forward: MultiplyForward over threads(n * plane * channels) {
        x: [Activation; n * plane * channels],
        s: [Activation; n * channels],
        y: [Activation; n * plane * channels],
        n: u32,
        plane: u32,
        channels: u32,
    }

    /// dy = dy s, ds = sum of dy x over the positions
    multiply_backward: MultiplyBackward over blocks(n * channels.div_ceil(32)) {
        x: [Activation; n * plane * channels],
        s: [Activation; n * channels],
        dy: [Activation; n * plane * channels],
        ds: (null or [Activation; n * channels]),
        n: u32,
        plane: u32,
        channels: u32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, _: &Multiply, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x: r.x[0] }))
}

impl Plan {
    /// Returns images, positions and channels.
    fn sizes(&self) -> [u32; 3] {
        [self.x.n, self.x.shape.plane(), self.x.shape.c].map(|size| size as u32)
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(2 * n, 3 * n))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems, [n, plane, channels]) = (&self.shared, self.x.elems(), self.sizes());
        let (s, y) = (shared.holds(x[1], self.x.n * self.x.shape.c)?, shared.holds(y, elems)?);
        shared.launch(&MultiplyForward { x: shared.holds(x[0], elems)?, s, y, n, plane, channels })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems, [n, plane, channels]) = (&self.shared, self.x.elems(), self.sizes());
        let factors = self.x.n * self.x.shape.c;
        let (x, s) = (shared.holds(g.x[0], elems)?, shared.holds(g.x[1], factors)?);
        let ds = g.dx[1].as_ref().map(|ds| shared.holds(ds, factors)).transpose()?;
        shared.launch(&MultiplyBackward { x, s, dy: shared.holds(g.dy, elems)?, ds, n, plane, channels })
    }
}
