//! Element-wise activations, for any memory layout.

use net::Activation;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation as Element, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::planned::Elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// y = f(x)
    activation_forward: ActivationForward over threads(n.div_ceil(4)) {
        x: [Element; n], y: [Element; n], n: u64, function: i32, a: f32,
    }

    /// dy *= the slope of f, which is computed from `seen` (x or y)
    activation_backward: ActivationBackward over threads(n.div_ceil(4)) {
        seen: [Element; n], dy: [Element; n], n: u64, function: i32, a: f32,
    }
}

/// An activation as the kernels' arguments.
struct Function {
    number: i32,
    a: f32,
    /// True if the gradient is computed from x, false if from y.
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

pub fn plan(gpu: &Cuda, op: &Activation, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, op, n) = (gpu.shared.clone(), *op, r.x[0].elems());
    let (traffic, launcher) = (shared.traffic(2 * n, 3 * n), shared.clone());
    let apply = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        forward(&launcher, op, launcher.holds(x[0], n)?, launcher.holds(y, n)?, n)
    };
    Elementwise::plan(r.x[0], Keeps::ALL, Some(traffic), apply, move |_, g: Gradients<'_, Cuda>| {
        let Function { number: function, a, from_x } = Function::of(op);
        let seen = shared.holds(if from_x { g.x[0] } else { g.y }, n)?;
        shared.launch(&ActivationBackward { seen, dy: shared.holds(g.dy, n)?, n: n as u64, function, a })
    })
}
