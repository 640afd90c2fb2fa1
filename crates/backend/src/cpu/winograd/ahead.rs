//! Pixels of the next strip, brought into the caches while the products of this one keep the core busy: strips come and go too quickly
//! for the processor to foresee them.

use super::super::vector::Vectors;
use super::strip::Run;
use crate::TensorDesc;

/// The pixels that the run of tiles after a given one will touch, a few at a time.
pub struct Ahead {
    next: *const f32,
    /// Pixels that are left, in each channel block.
    left: usize,
    /// Pixels at a time.
    each: usize,
    blocks: usize,
    /// Floats of a channel block.
    plane: usize,
}

impl Ahead {
    /// What follows `run` in `data`, from `row` rows below its first tile's on, in so many calls of [`Self::fetch`]. The `tiles` of an
    /// image have equal shares of its pixels, whatever their size.
    pub fn new(desc: &TensorDesc, data: &[f32], (run, tiles): (Run, usize), row: usize, calls: usize) -> Self {
        let (plane, following) = (desc.shape.plane(), run.first + run.count);
        let first = following / tiles * desc.blocks() * plane;
        let pixel = first + following % tiles * plane / tiles + row * desc.shape.w;
        let left = run.count * plane / tiles;
        Self {
            next: data.as_ptr().wrapping_add(pixel * desc.block),
            left,
            each: left.div_ceil(calls),
            blocks: desc.blocks(),
            plane: desc.shape.plane() * desc.block,
        }
    }

    /// Fetches the next of them; none at the end.
    #[inline(always)]
    pub fn fetch<S: Vectors>(&mut self, set: S) {
        let pixels = self.each.min(self.left);
        for block in 0..self.blocks {
            for pixel in 0..pixels {
                set.prefetch(self.next.wrapping_add(block * self.plane + pixel * S::LANES));
            }
        }
        self.next = self.next.wrapping_add(pixels * S::LANES);
        self.left -= pixels;
    }
}
