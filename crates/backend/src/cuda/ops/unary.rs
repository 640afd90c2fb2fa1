//! Plans of operations that have one input and no parameters, and whose backward pass reads only the gradient of the
//! output.

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::shared::Shared;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, Planned, TensorDesc, Traffic};

/// Plans an operation with the layouts of input and output, its traffic, and its two passes. `forward(gpu, x, y)` and
/// `backward(gpu, dy, dx)` launch their kernels. They own the operation's private memory of `state_bytes` bytes.
pub fn plan(
    gpu: &Cuda,
    [x, y]: [TensorDesc; 2],
    traffic: Traffic,
    state_bytes: usize,
    forward: impl Fn(&Shared, Slice<'_, Activation>, Slice<'_, Activation>) -> Result<(), Error> + 'static,
    backward: impl Fn(&Shared, Slice<'_, Activation>, Slice<'_, Activation>) -> Result<(), Error> + 'static,
) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher) = (gpu.shared.clone(), gpu.shared.clone());
    let forward = move |_: &Pass<'_, Cuda>, from: &[&CudaBuf], to: &mut CudaBuf| {
        forward(&launcher, launcher.holds(from[0], x.elems())?, launcher.holds(to, y.elems())?)
    };
    let backward = move |_: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>| {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        backward(&shared, shared.holds(g.dy, y.elems())?, shared.holds(dx, x.elems())?)
    };
    let plan = ClosurePlan::new(y, Keeps::NOTHING, forward, backward);
    Ok(Box::new(ClosurePlan { state_bytes, traffic: Some(traffic), ..plan }))
}
