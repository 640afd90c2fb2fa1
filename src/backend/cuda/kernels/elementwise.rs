//! The kernels of elementwise.cu.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// y = max(x, 0)
    relu_forward: ReluForward over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    /// dy = 0 where y is
    relu_backward: ReluBackward over threads(n.div_ceil(4)) {
        y: [Activation; n], dy: [Activation; n], n: u64,
    }

    /// y = tanh(x)
    tanh_forward: TanhForward over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    /// dy = dy (1 - y^2)
    tanh_backward: TanhBackward over threads(n.div_ceil(4)) {
        y: [Activation; n], dy: [Activation; n], n: u64,
    }

    /// y = x sigmoid(x)
    silu_forward: SiluForward over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    /// dy = dy s (1 + x (1 - s)), s = sigmoid(x)
    silu_backward: SiluBackward over threads(n.div_ceil(4)) {
        x: [Activation; n], dy: [Activation; n], n: u64,
    }

    /// y = a + b
    sum_of_two: SumOfTwo over threads(n.div_ceil(4)) {
        a: [Activation; n], b: [Activation; n], y: [Activation; n], n: u64,
    }

    /// Weights in the type of activations.
    cast_weights: CastWeights over threads(n) {
        from: [f32; n], to: [Activation; n], n: u64,
    }

    /// The way back, for their gradients.
    cast_gradients: CastGradients over threads(n) {
        from: [Activation; n], to: [f32; n], n: u64,
    }

    /// y = x
    copy_tensor: CopyTensor over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }
}
