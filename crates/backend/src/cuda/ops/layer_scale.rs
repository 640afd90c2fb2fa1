//! Multiplies each channel by a learned factor.

use std::rc::Rc;

use net::LayerScale;

use super::bias::PartialSums;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    parts: PartialSums,
}

pub fn plan(gpu: &Cuda, _: &LayerScale, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, x) = (gpu.shared.clone(), r.x[0]);
    let parts = PartialSums::new(&shared, x.n * x.shape.plane(), x.shape.c, 1, r.name)?;
    Ok(Box::new(Plan { shared, x, parts }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c)]
    }

    fn state_bytes(&self) -> usize {
        self.parts.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(2 * n, 3 * n))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let (factors, rows, channels) = (pass.params.at(pass.slots[0])?, self.parts.rows, self.x.shape.c as u32);
        shared.launch(&LayerScaleForward { x, factors, y, rows, channels })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        shared.launch(&LayerScaleBackward {
            x: shared.holds(g.x[0], elems)?,
            dy: shared.holds(g.dy, elems)?,
            factors: pass.params.at(pass.slots[0])?,
            partial: self.parts.sums(),
            arrivals: self.parts.arrivals(),
            rows: self.parts.rows,
            channels: self.x.shape.c as u32,
            width: self.parts.width(),
            gradient: (!pass.frozen).then(|| g.dparams.at(pass.slots[0])).transpose()?,
        })
    }
}
