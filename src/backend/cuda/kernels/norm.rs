//! The kernels of norm.cu.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// Sums of offsets and of their squares, one part a block row.
    norm_moments: NormMoments over columns(rows, channels) as grid {
        x: [Activation; rows.max(1) * channels], partial: [f64; 2 * grid.y * channels], rows: u64, channels: u32,
    }

    /// Statistics of the batch from these parts, and the affine map of the forward pass.
    norm_statistics: NormStatistics over threads(32 * channels) {
        x: [Activation; channels],
        partial: [f64; 2 * splits * channels],
        splits: u32,
        rows: u64,
        channels: u32,
        gamma: [f32; channels],
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
        gamma: [f32; channels],
        beta: [f32; channels],
        eps: f32,
        affine: [f32; 3 * channels],
    }

    /// y = affine(x), then residual and ReLU as the bits of `mode` say.
    norm_forward: NormForward over columns(rows, channels) {
        x: [Activation; rows * channels],
        residual: (null or [Activation; rows * channels]),
        y: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        rows: u64,
        channels: u32,
        mode: i32,
    }

    /// Sums of the gradient and of its product with the offsets, one part a block row.
    norm_backward_sums: NormBackwardSums over columns(rows, channels) as grid {
        x: [Activation; rows * channels],
        y: [Activation; rows * channels],
        second: (null or [Activation; rows * channels]),
        dy: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        partial: [f64; 2 * grid.y * channels],
        rows: u64,
        channels: u32,
        mode: i32,
    }

    /// The parameters' gradients, the sums themselves and the slopes of dx from these parts.
    norm_gradients: NormGradients over threads(32 * channels) {
        partial: [f64; 2 * splits * channels],
        splits: u32,
        statistics: [f64; 2 * channels],
        n: f64,
        channels: u32,
        eps: f32,
        affine: [f32; 3 * channels],
        dgamma: [f32; channels],
        dbeta: [f32; channels],
        sums: [f64; 2 * channels],
        slopes: [f32; 3 * channels],
    }

    /// The slopes of dx from the sums of all ranks.
    norm_slopes: NormSlopes over threads(channels) {
        sums: [f64; 2 * channels],
        statistics: [f64; 2 * channels],
        n: f64,
        channels: u32,
        eps: f32,
        affine: [f32; 3 * channels],
        slopes: [f32; 3 * channels],
    }

    /// dx from dy and the slopes.
    norm_backward: NormBackward over columns(rows, channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        dx: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        slopes: [f32; 3 * channels],
        rows: u64,
        channels: u32,
        mode: i32,
    }
}
