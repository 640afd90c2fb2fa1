//! Element-wise activations, for any memory layout.

use std::rc::Rc;

use net::Activation;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation as Element, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// y = f(x)
    activation_forward: ActivationForward over threads(n.div_ceil(4)) {
        x: [Element; n], y: [Element; n], n: u64, function: i32, a: f32,
    }

    /// dy times the slope of f, which is computed from x or y
    activation_backward: ActivationBackward over threads(n.div_ceil(4)) {
        seen: [Element; n], dy: [Element; n], n: u64, function: i32, a: f32,
    }
}

/// An activation as the kernels' arguments.
struct Function {
    number: i32,
    a: f32,
    /// Backward reads x instead of y.
    from_x: bool,
}

impl Function {
    fn of(op: Activation) -> Self {
        let (number, from_x) = match op {
            Activation::Identity => (0, true),
            Activation::Relu => (1, false),
            Activation::Relu6 => (2, false),
            Activation::LeakyRelu(_) => (3, true),
            Activation::Tanh => (4, false),
            Activation::Sigmoid => (5, false),
            Activation::HardSigmoid => (6, true),
            Activation::HardSwish => (7, true),
            Activation::Silu => (8, true),
            Activation::Gelu => (9, true),
            Activation::GeluTanh => (10, true),
            Activation::Scale(_) => (11, false),
        };
        let a = if let Activation::LeakyRelu(factor) | Activation::Scale(factor) = op { factor } else { 0.0 };
        Self { number, a, from_x }
    }
}

/// Launches y = f(x) for n elements. y may be x.
pub fn forward(
    gpu: &Shared,
    op: Activation,
    x: Slice<'_, Element>,
    y: Slice<'_, Element>,
    n: usize,
) -> Result<(), Error> {
    let Function { number: function, a, .. } = Function::of(op);
    gpu.launch(&ActivationForward { x, y, n: n as u64, function, a })
}

/// Launches a pass that sets the gradient to zero where the output of ReLU is zero.
pub fn mask(gpu: &Shared, y: Slice<'_, Element>, dy: Slice<'_, Element>, n: usize) -> Result<(), Error> {
    let Function { number: function, a, .. } = Function::of(Activation::Relu);
    gpu.launch(&ActivationBackward { seen: y, dy, n: n as u64, function, a })
}

struct Plan {
    shared: Rc<Shared>,
    op: Activation,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, op: &Activation, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), op: *op, x: r.x[0] }))
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
        let (shared, n) = (&self.shared, self.x.elems());
        forward(shared, self.op, shared.holds(x[0], n)?, shared.holds(y, n)?, n)
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let Function { number: function, a, from_x } = Function::of(self.op);
        let seen = shared.holds(if from_x { g.x[0] } else { g.y }, elems)?;
        let dy = shared.holds(g.dy, elems)?;
        shared.launch(&ActivationBackward { seen, dy, n: elems as u64, function, a })
    }
}
