//! Multiplies each channel by a learned factor.

use net::LayerScale;

use super::bias::PartialSums;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// y = x times the factor of its channel
    layer_scale_forward: LayerScaleForward over threads((rows * channels).div_ceil(4)) {
        x: [Activation; rows * channels],
        factors: [f32; channels],
        y: [Activation; rows * channels],
        rows: u32,
        channels: u32,
    }

    /// Replaces dy by dx and computes the gradients of the factors.
    layer_scale_backward: LayerScaleBackward over columns(rows, channels) as grid {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        factors: [f32; channels],
        partial: [f64; grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        gradient: (null or [f32; channels]),
    }
}

pub fn plan(gpu: &Cuda, _: &LayerScale, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher, desc, elems) = (gpu.shared.clone(), gpu.shared.clone(), r.x[0], r.x[0].elems());
    let parts = PartialSums::new(&shared, desc.n * desc.shape.plane(), 1, desc.shape.c, 1, r.name)?;
    let (state_bytes, rows, channels) = (parts.bytes(), parts.rows, desc.shape.c as u32);
    let traffic = Some(shared.traffic(2 * elems, 3 * elems));
    let forward = move |pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (x, y) = (launcher.holds(x[0], elems)?, launcher.holds(y, elems)?);
        launcher.launch(&LayerScaleForward { x, factors: pass.params.at(pass.slots[0])?, y, rows, channels })
    };
    let backward = move |pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>| {
        shared.launch(&LayerScaleBackward {
            x: shared.holds(g.x[0], elems)?,
            dy: shared.holds(g.dy, elems)?,
            factors: pass.params.at(pass.slots[0])?,
            partial: parts.sums(),
            arrivals: parts.arrivals(),
            rows,
            channels,
            width: parts.width(),
            gradient: (!pass.frozen).then(|| g.dparams.at(pass.slots[0])).transpose()?,
        })
    };
    let formats = vec![Format::Plain(desc.shape.c)];
    let plan = ClosurePlan::new(desc, Keeps::INPUT, forward, backward);
    Ok(Box::new(ClosurePlan { formats, in_place: true, state_bytes, traffic, ..plan }))
}
