//! The kernel of soft_loss.cu.

use super::kernel::kernels;
use crate::cuda::driver::slice::Activation;

kernels! {
    /// The same as `cross_entropy`, against targets over all classes, each row behind its weight.
    soft_loss: SoftLossKernel over threads(32 * rows) {
        x: [Activation; rows * classes],
        dx: (null or [Activation; rows * classes]),
        teacher: (null or [Activation; rows * classes]),
        labels: [u32; rows],
        targets: [f32; rows * (1 + classes)],
        factors: [f32; 2],
        loss_scale: [f32; 1],
        weight: f32,
        rows: u32,
        classes: u32,
        sigmoid: u32,
        gamma: f32,
        alpha: f32,
        mean: f32,
        share: f32,
        temperature: f32,
        losses: [f64; rows],
        hits: [u32; rows],
        arrivals: [u32; 1],
        not_finite: [u32; 1],
        sums: [f64; 4],
    }
}
