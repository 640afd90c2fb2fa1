//! A JPEG made smaller in its own colour space: luma and chroma as the file stores them, resized plane by plane, ready to
//! be encoded.
//!
//! Resizing is linear, so RGB would give the same but for its rounding and clipping, at the cost of two conversions and of
//! twice the samples. Chroma samples are centred on the pixels that they cover (JFIF), and go from the file's
//! resolution to the new one in one step.

use super::rgb::Size;
use loaders::{Plane, PlaneResizer};
use turbojpeg::{Subsamp, YuvImage};

/// Chroma of the files that are written: half the height and half the width of luma.
pub(super) const SUBSAMPLING: Subsamp = Subsamp::Sub2x2;

/// The planes of an image before and after resizing; buffers keep their memory from image to image.
pub(super) struct Planes {
    full: YuvImage<Vec<u8>>,
    small: YuvImage<Vec<u8>>,
    luma: PlaneResizer,
    chroma: PlaneResizer,
}

impl Planes {
    pub fn new() -> Self {
        let empty = |subsamp| YuvImage { pixels: Vec::new(), width: 0, align: 1, height: 0, subsamp };
        let resizer = PlaneResizer::default;
        Planes { full: empty(SUBSAMPLING), small: empty(SUBSAMPLING), luma: resizer(), chroma: resizer() }
    }

    /// Room for a decoder to write the planes of an image of this size into.
    pub fn full(&mut self, size: Size, subsamp: Subsamp) -> &mut [u8] {
        set_shape(&mut self.full, size, subsamp);
        &mut self.full.pixels
    }

    /// The decoded image, resized.
    pub fn resize(&mut self, size: Size) -> YuvImage<&[u8]> {
        set_shape(&mut self.small, size, SUBSAMPLING);
        let (full, small) = (&self.full, &mut self.small);
        // Pixels of `full` for each of `small`.
        let shrink = (full.height as f64 / size.height as f64, full.width as f64 / size.width as f64);
        let (from, to) = (plane_shapes(full), plane_shapes(small));
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

/// One plane: its size, and the rows and columns of pixels that a sample covers.
struct PlaneShape {
    height: usize,
    width: usize,
    pixels: (f64, f64),
}

/// Luma and chroma, in the order of memory. A luma sample covers one pixel.
fn plane_shapes<T>(image: &YuvImage<T>) -> [PlaneShape; 3] {
    let ((width, height), (chroma_width, chroma_height)) = (image.y_size(), image.uv_size());
    let pixels = (image.subsamp.height() as f64, image.subsamp.width() as f64);
    let chroma = || PlaneShape { height: chroma_height, width: chroma_width, pixels };
    [PlaneShape { height, width, pixels: (1.0, 1.0) }, chroma(), chroma()]
}

fn set_shape(image: &mut YuvImage<Vec<u8>>, size: Size, subsamp: Subsamp) {
    (image.height, image.width, image.subsamp) = (size.height, size.width, subsamp);
    let needed = plane_shapes(image).iter().map(|plane| plane.height * plane.width).sum();
    if image.pixels.len() < needed {
        image.pixels.resize(needed, 0);
    }
}
