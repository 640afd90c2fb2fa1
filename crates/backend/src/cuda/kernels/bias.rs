//! The kernels of bias.cu.

use super::kernel::kernels;
use crate::cuda::driver::slice::Activation;

kernels! {
    /// y = y + bias, then ReLU where that is wanted.
    bias_forward: BiasForward over columns(rows, channels) {
        y: [Activation; rows * channels], bias: [f32; channels], rows: u32, channels: u32, width: u32, with_relu: i32,
    }

    /// Masks dy by ReLU where that is wanted, and sums it over the rows.
    bias_backward: BiasBackward over columns(rows, channels) as grid {
        y: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        partial: [f64; grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        with_relu: i32,
        dbias: [f32; channels],
    }
}
