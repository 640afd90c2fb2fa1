//! Local response normalisation.

use std::rc::Rc;

use net::Lrn;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// Computes y from x.
    lrn_forward: LrnForward over threads(rows * channels) {
        x: [Activation; rows * channels],
        y: [Activation; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }

    /// Computes each channel's contribution to the gradients of its neighbours.
    lrn_send: LrnSend over threads(rows * channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        sent: [f32; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }

    /// Computes dx from dy and the contributions of the neighbours.
    lrn_backward: LrnBackward over threads(rows * channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        sent: [f32; rows * channels],
        dx: [Activation; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    op: Lrn,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, op: &Lrn, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    if r.train {
        gpu.shared.reserve(4 * r.x[0].elems(), r.name)?;
    }
    Ok(Box::new(Plan { shared: gpu.shared.clone(), op: *op, x: r.x[0] }))
}

impl Plan {
    /// Returns rows, channels and radius with the kernels' types.
    fn sizes(&self) -> (u64, u32, u32) {
        ((self.x.n * self.x.shape.plane()) as u64, self.x.shape.c as u32, self.op.radius as u32)
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        let Traffic { forward, backward } = self.shared.traffic(2 * n, 5 * n);
        // the contributions of the neighbours are f32, written once and read once
        Some(Traffic { forward, backward: backward + 8 * n })
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let ((rows, channels, radius), Lrn { k, alpha, beta, .. }) = (self.sizes(), self.op);
        shared.launch(&LrnForward { x, y, rows, channels, radius, k, alpha, beta })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, dy, dx) = (shared.holds(g.x[0], elems)?, shared.holds(g.dy, elems)?, shared.holds(dx, elems)?);
        let scratch = shared.scratch();
        let sent = scratch.slice();
        let ((rows, channels, radius), Lrn { k, alpha, beta, .. }) = (self.sizes(), self.op);
        shared.launch(&LrnSend { x, dy, sent, rows, channels, radius, k, alpha, beta })?;
        shared.launch(&LrnBackward { x, dy, sent, dx, rows, channels, radius, k, alpha, beta })
    }
}
