//! From a record to the pixels of its image, with `loaders`' decoder and the limits of training, and how they are made smaller.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use loaders::decode::{Decoder, Stored};
use loaders::{Example, Format, ImageSpec, Plane, PlaneResizer};
use turbojpeg::{Subsamp, YuvImage};

use super::moments::Moments;

/// Pixels of each side that a reduced image has, unless it is smaller itself.
const REDUCED: u32 = 16;

/// An image as interleaved bytes, perhaps smaller than it is stored.
pub(crate) struct Reduced<'a> {
    pub height: usize,
    pub width: usize,
    /// 1 for the luma of a colour JPEG.
    pub channels: usize,
    /// At least `height * width * channels` bytes.
    pub bytes: &'a [u8],
}

/// A decoder and its buffer, reused from image to image.
#[derive(Default)]
pub(crate) struct Pixels {
    decoder: Decoder,
    scratch: Vec<u8>,
}

impl Pixels {
    /// Adds the image of `example` to `moments`.
    ///
    /// Grey PNG and JPEG files in a record of 3 channels count as RGB, as in training.
    pub(crate) fn measure(&mut self, example: &Example<'_>, moments: &mut Moments) -> Result<(), String> {
        let (image, spec) = self.decode(example)?;
        moments.add(image, spec.channels as usize)
    }

    /// The whole image of `example` as interleaved bytes, and its shape.
    pub(crate) fn decode<'a>(&'a mut self, example: &Example<'a>) -> Result<(&'a [u8], ImageSpec), String> {
        let mut spec = agrees(example, &self.decoder.open(example).map_err(|e| e.to_string())?)?;
        if example.format != Format::Raw && example.channels == 3 {
            spec.channels = 3;
        }
        let image = self.decoder.decode_whole(example, spec, &mut self.scratch).map_err(|e| e.to_string())?;
        Ok((image, spec))
    }

    /// A record's image, if training can decode all of it and it agrees with the size in the record. A JPEG is read at the smallest size
    /// that leaves [`REDUCED`] pixels a side, which takes all of its data.
    pub(crate) fn reduced<'a>(&'a mut self, example: &Example<'a>) -> Result<Reduced<'a>, String> {
        let stored = self.decoder.open(example).map_err(|e| e.to_string())?;
        let spec = agrees(example, &stored)?;
        if stored.format() == Format::Raw {
            let (height, width) = (spec.height as usize, spec.width as usize);
            return Ok(Reduced { height, width, channels: spec.channels as usize, bytes: example.encoded });
        }
        // all data is read for luma alone, too
        let channels = if stored.planes().is_some() { 1 } else { spec.channels };
        let enough = |reduction: &u32| spec.height.min(spec.width).div_ceil(*reduction) >= REDUCED;
        let reduction = [8, 4, 2].into_iter().find(enough).unwrap_or(1);
        let decoded = self.decoder.reduced(stored, example.encoded, reduction, channels, &mut self.scratch);
        let (height, width) = decoded.map_err(|e| e.to_string())?;
        Ok(Reduced { height, width, channels: channels as usize, bytes: &self.scratch })
    }
}

/// The shape of a record's image by its header, if it agrees with the size in the record.
pub(crate) fn header(example: &Example<'_>) -> Result<ImageSpec, String> {
    agrees(example, &Decoder::default().open(example).map_err(|e| e.to_string())?)
}

/// The shape that is shown of an image, if the file's own agrees with the size in the record.
fn agrees(example: &Example<'_>, image: &Stored<'_>) -> Result<ImageSpec, String> {
    let (spec, file) = (image.spec(), image.file_spec());
    if example.format == Format::Raw {
        return Ok(spec);
    }
    for (what, stored, actual) in [("height", example.height, file.height), ("width", example.width, file.width)] {
        if stored != 0 && stored != actual {
            return Err(format!("image/{what} says {stored}, the {} file has {actual}", example.format));
        }
    }
    Ok(spec)
}

/// Height and width of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub height: usize,
    pub width: usize,
}

impl Size {
    /// The size of a JPEG decoded at 1 / `reduction`.
    pub fn reduced(self, reduction: u32) -> Self {
        let side = |pixels: usize| pixels.div_ceil(reduction as usize);
        Self { height: side(self.height), width: side(self.width) }
    }
}

/// An image of interleaved RGB bytes, row by row. Its buffer keeps its memory from image to image.
#[derive(Debug, Default)]
pub(super) struct Rgb {
    pub size: Size,
    /// True for the image of a grey file: its three channels are equal.
    pub is_grey: bool,
    /// `3 * height * width` bytes.
    pub pixels: Vec<u8>,
}

// RGB images to a smaller size: the triangle filter with antialiasing (PIL's BILINEAR), rounded to bytes after each of its two
// passes, by fast_image_resize.

/// A resizer of one thread.
pub(super) struct Resizer(fast_image_resize::Resizer);

impl Resizer {
    pub fn new() -> Self {
        Resizer(fast_image_resize::Resizer::new())
    }

    /// Writes `from`, resized to `size`, into `to`.
    pub fn run(&mut self, from: &Rgb, size: Size, to: &mut Rgb) -> Result<(), String> {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        to.pixels.resize(3 * size.height * size.width, 0);
        (to.size, to.is_grey) = (size, from.is_grey);
        // `resize_typed` compiles the one pixel type that is needed, `resize` all of them.
        let source = TypedImageRef::<U8x3>::from_buffer(from.size.width as u32, from.size.height as u32, &from.pixels);
        let source = source.map_err(|e| e.to_string())?;
        let target = TypedImage::<U8x3>::from_buffer(size.width as u32, size.height as u32, &mut to.pixels);
        let mut target = target.map_err(|e| e.to_string())?;
        self.0.resize_typed(&source, &mut target, &options).map_err(|e| e.to_string())
    }
}

// A JPEG made smaller in its own colour space: luma and chroma as the file stores them, resized plane by plane, ready to
// be encoded.
//
// Resizing is linear, so RGB would give the same but for its rounding and clipping, at the cost of two conversions and of
// twice the samples. Chroma samples are centred on the pixels that they cover (JFIF), and go from the file's
// resolution to the new one in one step.

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
