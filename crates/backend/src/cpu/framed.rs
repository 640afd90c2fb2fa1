//! Images in frames of zeros, for convolutions with padding that oneDNN does not support.

use net::{Conv, Shape};

use super::buf::AlignedBuf;
use super::threads::Threads;
use crate::{Error, TensorDesc};

/// Returns the position of an image in a frame of zeros with room for all windows: top, left, and the frame's height
/// and width.
pub(super) fn frame(op: &Conv, x: Shape, y: Shape) -> [usize; 4] {
    let extent = |axis: usize, size: usize, out: usize| {
        ((out - 1) * op.stride[axis] + op.extent()[axis]).max(size + op.pads[axis])
    };
    [op.pads[0], op.pads[1], extent(0, x.h, y.h), extent(1, x.w, y.w)]
}

/// Copies the first image in `x` into a frame of zeros. The frame has plain order.
pub(super) fn put_in_frame(image: &TensorDesc, x: &[f32], [top, left, height, width]: [usize; 4], framed: &mut [f32]) {
    let Shape { c, h, w } = image.shape;
    for (channel, row) in (0..c).flat_map(|channel| (0..h).map(move |row| (channel, row))) {
        let to = &mut framed[(channel * height + row + top) * width + left..][..w];
        let from = &x[image.at(channel, row * w)..];
        match image.block {
            1 => to.copy_from_slice(&from[..w]),
            block => to.iter_mut().zip(from.iter().step_by(block)).for_each(|(to, from)| *to = *from),
        }
    }
}

/// Copies of plain images, each inside a frame of zeros.
pub(super) struct Framed {
    image: Shape,
    /// Position of the image: top, left, and the frame's height and width.
    pub frame: [usize; 4],
    pub x: AlignedBuf,
}

impl Framed {
    /// Allocates the framed copies for padded convolutions that oneDNN 2.x does not support on AVX2: kernels wider than
    /// 7 with a stride, such as AlexNet's first layer. Returns `None` for all other convolutions. Also returns `None`
    /// if x is bf16 or in channel blocks, if the convolution has groups, or if the gradient of x is needed.
    pub fn new(op: &Conv, x: &TensorDesc, y: &TensorDesc, wants_dx: bool, name: &str) -> Result<Option<Self>, Error> {
        let refused = op.kernel[1] > 7 && op.stride != [1, 1] && op.pads != [0; 4];
        if !refused || x.bf16 || x.block != 1 || op.groups != 1 || wants_dx {
            return Ok(None);
        }
        let frame = frame(op, x.shape, y.shape);
        let buf = AlignedBuf::zeroed(x.n * x.shape.c * frame[2] * frame[3], name)?;
        Ok(Some(Self { image: x.shape, frame, x: buf }))
    }

    pub fn fill(&mut self, threads: Threads, images: &[f32]) {
        let (image, frame, elems) = (TensorDesc::plain(1, self.image), self.frame, self.image.elems());
        let framed = self.image.c * frame[2] * frame[3];
        threads.each_item(self.x.as_mut_slice(), framed, |n, to| {
            put_in_frame(&image, &images[n * elems..], frame, to);
        });
    }
}
