//! The part of a JPEG that is decoded. It is aligned as libjpeg-turbo requires, and includes the neighbours that chroma
//! upsampling reads.

use crate::decode::region::Need;

/// The rows and columns to decode, in the reduced image. The ends are exclusive.
pub(super) struct Frame {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

impl Frame {
    /// Returns a whole image of `height` x `width` at 1 / `reduction` of its size.
    pub fn whole(height: u32, width: u32, reduction: u32) -> Self {
        let side = |pixels: u32| pixels.div_ceil(reduction) as usize;
        Self { top: 0, left: 0, bottom: side(height), right: side(width) }
    }

    /// Returns the smallest frame that contains the part `need` of this frame, one more column on each side for chroma
    /// upsampling, and starts at the edge of an iMCU of `block` columns.
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
