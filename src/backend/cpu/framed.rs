//! Images with their padding around them, for convolutions that cannot pad by themselves.

use super::buf::AlignedBuf;
use super::few_channels::put_in_frame;
use super::threads::Threads;
use crate::backend::op::{Conv, Shape};
use crate::backend::{Error, TensorDesc};

/// A plain image in the middle of zeros.
pub(super) struct Framed {
    image: Shape,
    /// Where the image lies: top, left, and the frame's height and width.
    pub frame: [usize; 4],
    pub x: AlignedBuf,
}

impl Framed {
    /// For a convolution that oneDNN 2.x has for AVX2 only without padding: a kernel wider than 7 at a stride (AlexNet's first).
    pub fn new(op: &Conv, x: &TensorDesc, y: &TensorDesc, wants_dx: bool, name: &str) -> Result<Option<Self>, Error> {
        let refused = op.kernel[1] > 7 && op.stride != [1, 1] && op.pads != [0; 4];
        if !refused || x.bf16 || x.block != 1 || op.groups != 1 || wants_dx {
            return Ok(None);
        }
        let extent = |axis: usize, size: usize, out: usize| {
            ((out - 1) * op.stride[axis] + op.extent()[axis]).max(size + op.pads[axis])
        };
        let (height, width) = (extent(0, x.shape.h, y.shape.h), extent(1, x.shape.w, y.shape.w));
        let buf = AlignedBuf::zeroed(x.n * x.shape.c * height * width, name)?;
        Ok(Some(Self { image: x.shape, frame: [op.pads[0], op.pads[1], height, width], x: buf }))
    }

    pub fn fill(&mut self, threads: Threads, images: &[f32]) {
        let (image, frame, elems) = (self.image, self.frame, self.image.elems());
        let framed = image.c * frame[2] * frame[3];
        threads.split(self.x.as_mut_slice(), framed, |first, run| {
            for (n, to) in (first..).zip(run.chunks_exact_mut(framed)) {
                put_in_frame(&images[n * elems..][..elems], image.w, image.h, frame, to);
            }
        });
    }
}
