//! A JPEG made smaller in its own colour space: luma and chroma as the file stores them, resized plane by plane, ready to
//! be encoded. What is decoded and how is `recode`'s matter.
//!
//! Resizing is linear, so RGB would give the same but for its rounding and clipping, at the cost of two conversions and of
//! twice the samples. Chroma samples lie in the middle of the pixels that they stand for (JFIF), and go from the file's
//! resolution to the new one in one step.

use loaders::{Plane, PlaneResizer};
use turbojpeg::{Colorspace, DecompressHeader, Subsamp, YuvImage};

/// Chroma of the files that are made.
pub(crate) const SUBSAMPLING: Subsamp = Subsamp::Sub2x2;

/// Whether a file's planes can be had: luma and two of chroma, by the DCT.
pub(crate) fn suits(header: &DecompressHeader) -> bool {
    let known = !matches!(header.subsamp, Subsamp::Gray | Subsamp::Unknown);
    known && header.colorspace == Colorspace::YCbCr && !header.is_lossless
}

/// The planes of an image before and after; buffers keep their memory from image to image.
pub(crate) struct Planes {
    full: YuvImage<Vec<u8>>,
    small: YuvImage<Vec<u8>>,
    luma: PlaneResizer,
    chroma: PlaneResizer,
}

impl Planes {
    pub(crate) fn new() -> Self {
        let empty = |subsamp| YuvImage { pixels: Vec::new(), width: 0, align: 1, height: 0, subsamp };
        let resizer = PlaneResizer::default;
        Planes { full: empty(SUBSAMPLING), small: empty(SUBSAMPLING), luma: resizer(), chroma: resizer() }
    }

    /// Where a decoder is to put an image of this size.
    pub(crate) fn full(&mut self, height: usize, width: usize, subsamp: Subsamp) -> YuvImage<&mut [u8]> {
        shape(&mut self.full, height, width, subsamp);
        self.full.as_deref_mut()
    }

    /// The image that was decoded, resized.
    pub(crate) fn resize(&mut self, height: usize, width: usize) -> YuvImage<&[u8]> {
        shape(&mut self.small, height, width, SUBSAMPLING);
        let (full, small) = (&self.full, &mut self.small);
        // pixels of `full` for each of `small`
        let shrink = (full.height as f64 / height as f64, full.width as f64 / width as f64);
        let (from, to) = (shapes(full), shapes(small));
        let (mut source, mut target) = (full.pixels.as_slice(), small.pixels.as_mut_slice());
        for (i, (from, to)) in from.into_iter().zip(to).enumerate() {
            let (bytes, rest) = source.split_at(from.height * from.width);
            let (result, rest_of_target) = target.split_at_mut(to.height * to.width);
            let shrink = (to.pixels.0 * shrink.0 / from.pixels.0, to.pixels.1 * shrink.1 / from.pixels.1);
            let resizer = if i == 0 { &mut self.luma } else { &mut self.chroma };
            let plane = Plane { bytes, height: from.height, width: from.width };
            resizer.run(plane, shrink, result, (to.height, to.width));
            (source, target) = (rest, rest_of_target);
        }
        self.small.as_deref()
    }
}

/// One plane: its size, and the rows and columns of pixels that a sample stands for.
struct Shape {
    height: usize,
    width: usize,
    pixels: (f64, f64),
}

/// Luma and chroma, in the order in which they lie in memory. Luma is as large as all chroma samples' pixels.
fn shapes<T>(image: &YuvImage<T>) -> [Shape; 3] {
    let ((width, height), (chroma_width, chroma_height)) = (image.y_size(), image.uv_size());
    let pixels = (image.subsamp.height() as f64, image.subsamp.width() as f64);
    let chroma = || Shape { height: chroma_height, width: chroma_width, pixels };
    [Shape { height, width, pixels: (1.0, 1.0) }, chroma(), chroma()]
}

fn shape(image: &mut YuvImage<Vec<u8>>, height: usize, width: usize, subsamp: Subsamp) {
    (image.height, image.width, image.subsamp) = (height, width, subsamp);
    let needed = shapes(image).iter().map(|plane| plane.height * plane.width).sum();
    if image.pixels.len() < needed {
        image.pixels.resize(needed, 0);
    }
}
