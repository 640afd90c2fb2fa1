//! The kernels of input.cu. Each copies `words` numbers of the pass from memory of the host to the inbox, too.

use super::kernel::kernels;
use crate::CropRect;
use crate::cuda::driver::slice::{Activation, plain};

plain! { CropRect = "CropRect" }

kernels! {
    /// Values, (n, c, h, w).
    input_values: InputValues over threads(rows * plane) {
        images: [f32; rows * channels * plane],
        to: [Activation; rows * channels * plane],
        rows: u32,
        channels: u32,
        plane: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    /// Bytes, (n, h, w, c), by a table for each channel.
    input_bytes: InputBytes over threads(n) {
        pixels: [u8; n],
        tables: [f32; 256 * channels],
        to: [Activation; n],
        n: u64,
        channels: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    /// Rows (n, h, w, c) mixed in place with those that mirror them in the batch: within the area whole pixels are exchanged; where
    /// `bottom` is 0, all are mixed by `share`.
    mix_rows: MixRows over threads(rows / 2 * h * w * channels) {
        x: [Activation; rows * h * w * channels],
        rows: u32,
        h: u32,
        w: u32,
        channels: u32,
        share: f32,
        top: u32,
        bottom: u32,
        left: u32,
        right: u32,
    }

    /// Parts of pictures that are on the GPU; the views name the first `pictures_used` of them.
    input_views: InputViews over threads(rows * h * w) given(pictures_used) {
        pictures: [u8; pictures_used * from_h * from_w * channels],
        from_h: u32,
        from_w: u32,
        views: [CropRect; rows],
        tables: [f32; 256 * channels],
        to: [Activation; rows * h * w * channels],
        rows: u32,
        h: u32,
        w: u32,
        channels: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }
}
