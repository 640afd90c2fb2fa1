//! Local response normalisation.

use net::Lrn;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, Traffic};

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

pub fn plan(gpu: &Cuda, op: &Lrn, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher, desc, elems) = (gpu.shared.clone(), gpu.shared.clone(), r.x[0], r.x[0].elems());
    if r.train {
        shared.reserve(4 * elems, r.name)?;
    }
    let Lrn { k, alpha, beta, .. } = *op;
    let (rows, channels, radius) = ((desc.n * desc.shape.plane()) as u64, desc.shape.c as u32, op.radius as u32);
    let Traffic { forward, backward } = shared.traffic(2 * elems, 5 * elems);
    // the contributions of the neighbours are f32, written once and read once
    let traffic = Some(Traffic { forward, backward: backward + 8 * elems });
    let forward = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (x, y) = (launcher.holds(x[0], elems)?, launcher.holds(y, elems)?);
        launcher.launch(&LrnForward { x, y, rows, channels, radius, k, alpha, beta })
    };
    let backward = move |_: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>| {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (x, dy, dx) = (shared.holds(g.x[0], elems)?, shared.holds(g.dy, elems)?, shared.holds(dx, elems)?);
        let scratch = shared.scratch();
        let sent = scratch.slice();
        shared.launch(&LrnSend { x, dy, sent, rows, channels, radius, k, alpha, beta })?;
        shared.launch(&LrnBackward { x, dy, sent, dx, rows, channels, radius, k, alpha, beta })
    };
    Ok(Box::new(ClosurePlan { traffic, ..ClosurePlan::new(desc, Keeps::INPUT, forward, backward) }))
}
