//! Loops over flat arrays that operations share.

use base::{bf16, simd};

use super::threads::Threads;
use crate::TensorDesc;

/// Minimum number of elements per thread. It is a multiple of a cache line, so that no two threads write to the same
/// line.
pub(super) const UNIT: usize = 1024;

simd! {
    fn mask_run(dy: &mut [f32], y: &[f32]) {
        for (d, y) in dy.iter_mut().zip(y) {
            *d = if *y <= 0.0 { 0.0 } else { *d };
        }
    }
}

/// Zeroes the gradient `dy` wherever the output `y` of ReLU is 0. Where y is NaN, the gradient passes, as in PyTorch.
pub(super) fn mask(threads: Threads, dy: &mut [f32], y: &[f32]) {
    threads.split_both(dy, y, UNIT, mask_run);
}

simd! {
    fn add_run(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }
}

/// `to += from` up to the shorter length, because shared buffers may be longer than their content.
pub(super) fn add_to(threads: Threads, to: &mut [f32], from: &[f32]) {
    let n = to.len().min(from.len());
    threads.split_both(&mut to[..n], from, UNIT, add_run);
}

/// `to += from` in bf16. Each sum is computed in f32 and rounded.
pub(super) fn add_halves(threads: Threads, to: &mut [u16], from: &[u16]) {
    threads.split_both(to, from, UNIT, bf16::add);
}

/// Zeroes the padding channels in the last block of each image.
pub(super) fn clear_padding(threads: Threads, desc: &TensorDesc, y: &mut [f32]) {
    let used = desc.shape.c % desc.block;
    if used == 0 {
        return;
    }
    let (sample, last) = (desc.sample_elems(), desc.shape.plane() * desc.block);
    threads.each_item(&mut y[..desc.elems()], sample, |_, image| {
        image[sample - last..].chunks_exact_mut(desc.block).for_each(|place| place[used..].fill(0.0));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_mask_keeps_gradients_of_nan_outputs() {
        let mut dy = [1.0, 2.0, 3.0, 4.0];
        mask(Threads(1), &mut dy, &[f32::NAN, 0.0, 5.0, -0.0]);
        assert_eq!(dy, [1.0, 0.0, 3.0, 0.0]);
    }
}
