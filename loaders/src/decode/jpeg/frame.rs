//! The part of a JPEG that is decoded: aligned as libjpeg-turbo needs it, with the neighbours that chroma upsampling reads.

use crate::decode::region::Need;

/// Rows and columns to decode, in the reduced image, ends excluded.
pub(super) struct Frame {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

impl Frame {
    /// All of an image of `height` x `width`, at 1 / `reduction` of its size.
    pub fn whole(height: u32, width: u32, reduction: u32) -> Self {
        let side = |pixels: u32| pixels.div_ceil(reduction) as usize;
        Self { top: 0, left: 0, bottom: side(height), right: side(width) }
    }

    /// The frame around what is needed of this one: its left edge must be that of an iMCU of `block` columns, and chroma upsampling needs
    /// a neighbour on both sides to give the same pixels as within the whole image.
    pub fn around(self, need: Need, reduction: u32, block: usize) -> Self {
        let reduction = reduction as usize;
        let block = block / reduction;
        let region = need.region;
        Self {
            top: region.top / reduction,
            left: (region.left / reduction).saturating_sub(1) / block * block,
            bottom: region.bottom.div_ceil(reduction).min(self.bottom),
            right: (region.right.div_ceil(reduction) + 1).min(self.right),
        }
    }

    pub fn rows(&self) -> usize {
        self.bottom - self.top
    }

    pub fn columns(&self) -> usize {
        self.right - self.left
    }
}
