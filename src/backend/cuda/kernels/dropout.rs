//! The kernel of dropout.cu.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// to = from times 0 or 1 / (1 - p)
    dropout: Dropout over threads((rows * channels * plane).div_ceil(4)) {
        from: [Activation; rows * channels * plane],
        to: [Activation; rows * channels * plane],
        rows: u32,
        channels: u32,
        plane: u32,
        seed: u64,
        epoch: [u32; 1],
        ids: [u64; rows],
        op: u32,
        p: f32,
    }
}
