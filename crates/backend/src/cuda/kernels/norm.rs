//! The kernels of norm.cu.

use super::kernel::kernels;
use super::shortcut::Sizes;
use crate::cuda::driver::slice::Activation;

// `pack` is the channels of a byte of the mask; `residual_elems` and `second_elems` are those of tensors that are read through a shortcut,
// or of x.
kernels! {
    /// Statistics of the batch from sums of offsets and of their squares, and the affine map of the forward pass.
    norm_moments: NormMoments over columns(rows, channels) as grid {
        x: [Activation; rows.max(1) * channels],
        partial: [f64; 2 * grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        gamma: (null or [f32; channels]),
        beta: [f32; channels],
        eps: f32,
        statistics: [f64; 2 * channels],
        seen: [f64; 2 * channels],
        affine: [f32; 3 * channels],
    }

    /// The affine map from statistics of n values a channel, or, where n is 0, from running ones.
    norm_affine: NormAffine over threads(channels) {
        statistics: (null or [f64; 2 * channels]),
        running: (null or [f32; 2 * channels]),
        n: f64,
        channels: u32,
        gamma: (null or [f32; channels]),
        beta: [f32; channels],
        eps: f32,
        affine: [f32; 3 * channels],
    }

    /// y = affine(x), then residual and ReLU as the bits of `mode` say; with a residual, where ReLU let values through.
    norm_forward: NormForward over columns(rows, channels) as grid given(pack, residual_elems) {
        x: [Activation; rows * channels],
        residual: (null or [Activation; residual_elems]),
        y: [Activation; rows * channels],
        mask: (null or [u8; grid.x * rows * width / pack]),
        affine: [f32; 3 * channels],
        shortcut: (null or [Sizes; 1]),
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
    }

    /// The parameters' gradients, sums of the gradient and of its product with the offsets, and the slopes of dx.
    norm_gradients: NormGradients over columns(rows, channels) as grid given(pack, second_elems) {
        x: [Activation; rows * channels],
        second: (null or [Activation; second_elems]),
        mask: (null or [u8; grid.x * rows * width / pack]),
        dy: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        shortcut: (null or [Sizes; 1]),
        partial: [f64; 2 * grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
        statistics: [f64; 2 * channels],
        n: f64,
        eps: f32,
        dgamma: (null or [f32; channels]),
        dbeta: (null or [f32; channels]),
        sums: [f64; 2 * channels],
        slopes: [f32; 2 * channels],
    }

    /// The slopes of dx from the sums of all ranks.
    norm_slopes: NormSlopes over threads(channels) {
        sums: [f64; 2 * channels],
        statistics: [f64; 2 * channels],
        n: f64,
        channels: u32,
        eps: f32,
        affine: [f32; 3 * channels],
        slopes: [f32; 2 * channels],
    }

    /// dx from dy and the slopes.
    norm_backward: NormBackward over columns(rows, channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        dx: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        slopes: [f32; 2 * channels],
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
    }
}
