//! Plans of operations that have one input and no parameters, and whose backward pass reads only the gradient of the
//! output.

use std::rc::Rc;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, Planned, TensorDesc, Traffic};

/// Launches the kernel of a pass, which reads the first tensor and writes the second.
type Launch = dyn Fn(&Shared, Slice<'_, Activation>, Slice<'_, Activation>) -> Result<(), Error>;

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    y: TensorDesc,
    traffic: Traffic,
    state_bytes: usize,
    forward: Box<Launch>,
    backward: Box<Launch>,
}

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
    let (shared, forward, backward) = (gpu.shared.clone(), Box::new(forward), Box::new(backward));
    Ok(Box::new(Plan { shared, x, y, traffic, state_bytes, forward, backward }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        Some(self.traffic)
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        (self.forward)(shared, shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?)
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let shared = &self.shared;
        (self.backward)(shared, shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?)
    }
}
