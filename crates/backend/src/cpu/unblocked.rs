//! A blocked image with padding between its channels, copied to plain order for a linear layer, and back for its gradient.

use super::buf::AlignedBuf;
use super::device::Cpu;
use crate::{Error, PlanRequest, TensorDesc};

/// The copies.
pub(super) struct Unblocked {
    image: TensorDesc,
    pub x: AlignedBuf,
    pub dx: AlignedBuf,
}

impl Unblocked {
    /// For the first input; none where its channels fill their blocks.
    pub fn new(r: &PlanRequest<'_, Cpu>) -> Result<Option<Self>, Error> {
        let image = r.x[0];
        if image.shape.c.is_multiple_of(image.block) {
            return Ok(None);
        }
        let elems = image.n * image.shape.elems();
        let dx = if r.train && r.wants_dx { elems } else { 0 };
        Ok(Some(Self { image, x: AlignedBuf::zeroed(elems, r.name)?, dx: AlignedBuf::zeroed(dx, r.name)? }))
    }

    /// Bytes of both.
    pub fn bytes(&self) -> usize {
        4 * (self.x.as_slice().len() + self.dx.as_slice().len())
    }

    /// Copies the image.
    pub fn fill(&mut self, image: &AlignedBuf) {
        self.image.to_plain(image.as_slice(), self.x.as_mut_slice());
    }

    /// Copies the gradient back.
    pub fn give_back(&self, dx: &mut AlignedBuf) {
        self.image.from_plain(self.dx.as_slice(), dx.as_mut_slice());
    }
}
