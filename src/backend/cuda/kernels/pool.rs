//! The kernels of pool.cu. The tables of windows name no cell beyond an image.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// y from the windows of x; `best` keeps the winning cell of each, in one byte or in four.
    pool_forward: PoolForward over threads(n * out_h * out_w * c) {
        x: [Activation; n * h * w * c],
        y: [Activation; n * out_h * out_w * c],
        best: (null or [u8; n * out_h * out_w * c * if byte_index == 0 { 4 } else { 1 }]),
        byte_index: i32,
        rows: [i32; 3 * out_h],
        columns: [i32; 3 * out_w],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        kind: i32,
    }

    /// dx, gathered from the windows that hold each cell.
    pool_backward: PoolBackward over threads(n * h * w * c) {
        dy: [Activation; n * out_h * out_w * c],
        dx: [Activation; n * h * w * c],
        best: (null or [u8; n * out_h * out_w * c * if byte_index == 0 { 4 } else { 1 }]),
        byte_index: i32,
        rows: [i32; 3 * out_h],
        columns: [i32; 3 * out_w],
        over_rows: [i32; 2 * h],
        over_columns: [i32; 2 * w],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        kind: i32,
    }
}
