//! The kernels of elementwise.cu that several ops or passes launch.

use super::kernel::kernels;
use crate::cuda::driver::slice::Activation;

kernels! {
    /// y = a + b
    sum_of_two: SumOfTwo over threads(n.div_ceil(4)) {
        a: [Activation; n], b: [Activation; n], y: [Activation; n], n: u64,
    }

    /// Weights in the type of activations.
    cast_weights: CastWeights over threads(n) {
        from: [f32; n], to: [Activation; n], n: u64,
    }

    /// y = x
    copy_tensor: CopyTensor over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }
}
