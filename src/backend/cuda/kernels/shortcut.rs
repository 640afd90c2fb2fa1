//! The kernels of shortcut.cu.

use super::kernel::kernels;
use crate::backend::cuda::driver::slice::Activation;

kernels! {
    /// y: every `stride`-th place of x, its channels from `before` on, zeros around them.
    shortcut_forward: ShortcutForward over threads(n * out_h * out_w * out_c) {
        x: [Activation; n * h * w * c],
        y: [Activation; n * out_h * out_w * out_c],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        out_c: u32,
        stride: u32,
        before: u32,
    }

    /// dx: the places that were taken, zeros elsewhere.
    shortcut_backward: ShortcutBackward over threads(n * h * w * c) {
        dy: [Activation; n * out_h * out_w * out_c],
        dx: [Activation; n * h * w * c],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        out_c: u32,
        stride: u32,
        before: u32,
    }
}
