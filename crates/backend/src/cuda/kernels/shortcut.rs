//! The kernels of shortcut.cu, and what kernels know of a shortcut.

use super::kernel::kernels;
use crate::cuda::driver::slice::{Activation, plain};

/// A shortcut as kernels know it: see shortcut.cuh.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Sizes {
    pub h: u32,
    pub w: u32,
    pub c: u32,
    pub out_h: u32,
    pub out_w: u32,
    pub out_c: u32,
    pub stride: u32,
    pub before: u32,
}

plain! { Sizes = "Shortcut" }

kernels! {
    /// y: every `stride`-th pixel of x, its channels from `before` on, zeros around them; x has `from` elements.
    shortcut_forward: ShortcutForward over threads(n) given(from) {
        x: [Activation; from], y: [Activation; n], shortcut: [Sizes; 1], n: u64,
    }

    /// dx: the pixels that were taken, zeros elsewhere; dy has `from` elements.
    shortcut_backward: ShortcutBackward over threads(n) given(from) {
        dy: [Activation; from], dx: [Activation; n], shortcut: [Sizes; 1], n: u64,
    }
}
