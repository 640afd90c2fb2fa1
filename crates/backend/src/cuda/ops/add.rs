//! Sum of two tensors.

use net::Add;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::declarations::{CopyTensor, SumOfTwo};
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub fn plan(gpu: &Cuda, _: &Add, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, elems) = (gpu.shared.clone(), r.x[0].elems());
    let (traffic, launcher) = (shared.traffic(3 * elems, 2 * elems), shared.clone());
    let forward = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (a, b) = (launcher.holds(x[0], elems)?, launcher.holds(x[1], elems)?);
        launcher.launch(&SumOfTwo { a, b, y: launcher.holds(y, elems)?, n: elems as u64 })
    };
    elementwise(r.x[0], Keeps::NOTHING, Some(traffic), forward, move |_, mut g: Gradients<'_, Cuda>| {
        let Some(dx) = g.take_dx(1) else { return Ok(()) };
        let (dy, dx) = (shared.holds(g.dy, elems)?, shared.holds(dx, elems)?);
        shared.launch(&CopyTensor { x: dy, y: dx, n: elems as u64 })
    })
}
