//! Images with their padding around them, for convolutions that cannot pad by themselves.

use net::{Conv, Shape};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::few_channels::put_in_frame;
use super::relaid;
use super::threads::Threads;
use crate::{Error, PlanRequest, Planned, TensorDesc};

/// A plan, and whether a pass takes oneDNN's plain loops.
pub(super) type Judged = (Box<dyn Planned<Cpu>>, bool);

/// Plans a convolution as `of` plans one without padding, of images that stand in frames of zeros: oneDNN has nothing but plain loops where
/// a kernel lies beside the image with all its cells. None where it has nothing else without padding either.
pub(super) fn plan(
    cpu: &Cpu,
    op: &Conv,
    r: &PlanRequest<'_, Cpu>,
    of: impl FnOnce(&Conv, &PlanRequest<'_, Cpu>) -> Result<Judged, Error>,
) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    if op.pads == [0; 4] {
        return Ok(None);
    }
    let [top, left, height, width] = frame(op, r.x[0].shape, r.output()?);
    let framed = r.x[0].with_shape(Shape::image(r.x[0].shape.c, height, width));
    // the operation before writes no frame; that behind reads the output as it is
    let request = PlanRequest { x: &[framed], before: None, ..*r };
    let (inner, is_slow) = of(&op.clone().pads([0; 4]), &request)?;
    if is_slow { Ok(None) } else { relaid::in_frame(cpu, r, inner, &framed, [top, left]).map(Some) }
}

/// Where an image lies in a frame that has room for all windows: top, left, and the frame's height and width.
fn frame(op: &Conv, x: Shape, y: Shape) -> [usize; 4] {
    let extent = |axis: usize, size: usize, out: usize| {
        ((out - 1) * op.stride[axis] + op.extent()[axis]).max(size + op.pads[axis])
    };
    [op.pads[0], op.pads[1], extent(0, x.h, y.h), extent(1, x.w, y.w)]
}

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
        let frame = frame(op, x.shape, y.shape);
        let buf = AlignedBuf::zeroed(x.n * x.shape.c * frame[2] * frame[3], name)?;
        Ok(Some(Self { image: x.shape, frame, x: buf }))
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
