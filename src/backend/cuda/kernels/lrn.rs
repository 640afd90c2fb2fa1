//! The kernels of lrn.cu.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// y from x.
    lrn_forward: LrnForward over threads(rows * channels) {
        x: [Activation; rows * channels],
        y: [Activation; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }

    /// What each channel sends to its neighbours.
    lrn_send: LrnSend over threads(rows * channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        sent: [f32; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }

    /// dx from dy and from what the neighbours have sent.
    lrn_backward: LrnBackward over threads(rows * channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        sent: [f32; rows * channels],
        dx: [Activation; rows * channels],
        rows: u64,
        channels: u32,
        radius: u32,
        k: f32,
        alpha: f32,
        beta: f32,
    }
}
