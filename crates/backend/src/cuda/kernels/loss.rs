//! The kernels of loss.cu.

use super::kernel::kernels;
use crate::cuda::driver::slice::Activation;

kernels! {
    /// Loss and hits of each row, and the gradient of the scores unless dx is null; then loss, hits at one and at five, and rows whose
    /// label is no class.
    cross_entropy: CrossEntropy over threads(32 * rows) {
        x: [Activation; rows * classes],
        dx: (null or [Activation; rows * classes]),
        labels: [u32; rows],
        factors: [f32; 2],
        loss_scale: [f32; 1],
        weight: f32,
        rows: u32,
        classes: u32,
        losses: [f64; rows],
        hits: [u32; rows],
        arrivals: [u32; 1],
        not_finite: [u32; 1],
        sums: [f64; 4],
    }
}
