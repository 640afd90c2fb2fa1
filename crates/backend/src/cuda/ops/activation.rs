//! Element-wise activations, for any memory layout.

use net::Activation;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation as Element, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// y = f(x)
    activation_forward: ActivationForward over threads(n.div_ceil(4)) {
        x: [Element; n], y: [Element; n], n: u64, function: i32, a: f32,
    }

    /// dy *= the slope of f, which is computed from `seen`
    activation_backward: ActivationBackward over threads(n.div_ceil(4)) {
        seen: [Element; n], dy: [Element; n], n: u64, function: i32, a: f32,
    }
}

/// An activation as the kernels' arguments.
struct Function {
    number: i32,
    a: f32,
    /// The tensor from which the slope is computed. The slope of some functions is constant.
    slope_input: Keeps,
}

impl Function {
    fn of(op: Activation) -> Self {
        let (number, slope_input) = match op {
            Activation::Identity => (0, Keeps::NOTHING),
            Activation::Relu => (1, Keeps::OUTPUT),
            Activation::Relu6 => (2, Keeps::OUTPUT),
            Activation::LeakyRelu(_) => (3, Keeps::INPUT),
            Activation::Tanh => (4, Keeps::OUTPUT),
            Activation::Sigmoid => (5, Keeps::OUTPUT),
            Activation::HardSigmoid => (6, Keeps::INPUT),
            Activation::HardSwish => (7, Keeps::INPUT),
            Activation::Silu => (8, Keeps::INPUT),
            Activation::Gelu => (9, Keeps::INPUT),
            Activation::GeluTanh => (10, Keeps::INPUT),
            Activation::Scale(_) => (11, Keeps::NOTHING),
        };
        let a = if let Activation::LeakyRelu(factor) | Activation::Scale(factor) = op { factor } else { 0.0 };
        Self { number, a, slope_input }
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
    let Function { number: function, a, slope_input } = Function::of(op);
    let backward = if slope_input == Keeps::NOTHING { 2 * n } else { 3 * n };
    let (traffic, launcher) = (shared.traffic(2 * n, backward), shared.clone());
    let apply = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        forward(&launcher, op, launcher.holds(x[0], n)?, launcher.holds(y, n)?, n)
    };
    elementwise(r.x[0], slope_input, Some(traffic), apply, move |_, g: Gradients<'_, Cuda>| {
        let dy = shared.holds(g.dy, n)?;
        let seen = match slope_input {
            Keeps::INPUT => shared.holds(g.x[0], n)?,
            Keeps::OUTPUT => shared.holds(g.y, n)?,
            // the kernel does not use the values
            _ => dy,
        };
        shared.launch(&ActivationBackward { seen, dy, n: n as u64, function, a })
    })
}
