//! Decodes the images of records with the decoder and limits of training, and resizes them.

use loaders::decode::{Decoder, OpenedImage};
use loaders::{Example, Format, ImageSpec, Plane, PlaneResizer};
use turbojpeg::{Subsamp, YuvImage};

use super::false_colours::{self, is_photo};
use super::moments::Moments;
use crate::raw::values::Values;

/// Minimum side length of a reduced image, unless the stored image is smaller.
const REDUCED: u32 = 16;

/// A decoded image with interleaved channels. It may be smaller than the stored image.
pub(crate) struct Reduced<'a> {
    pub height: usize,
    pub width: usize,
    /// 1 if only the luma of a colour JPEG was decoded.
    pub channels: usize,
    /// Contains at least `height * width * channels` bytes.
    pub bytes: &'a [u8],
}

/// A decoder with a buffer that is reused for each image.
#[derive(Default)]
pub(crate) struct PixelDecoder {
    decoder: Decoder,
    scratch: Vec<u8>,
}

impl PixelDecoder {
    /// Adds the image of `example` to `moments`.
    pub(crate) fn measure(&mut self, example: &Example<'_>, moments: &mut Moments) -> Result<(), String> {
        let (image, spec) = self.decode(example)?;
        moments.add(image, spec.channels as usize)
    }

    /// Decodes the image of `example` at full size to interleaved bytes, and returns its shape.
    pub(crate) fn decode<'a>(&'a mut self, example: &Example<'a>) -> Result<(&'a [u8], ImageSpec), String> {
        let mut spec = check_size(example, &self.decoder.open(example).map_err(|e| e.to_string())?)?;
        if example.format != Format::Raw && example.channels == 3 {
            spec.channels = 3;
        }
        let image = self.decoder.decode_whole(example, spec, &mut self.scratch).map_err(|e| e.to_string())?;
        Ok((image, spec))
    }

    /// Decodes the image of a record at reduced size. Returns an error if training could not decode it or if its size
    /// differs from the record. A JPEG is decoded at the smallest size with at least [`REDUCED`] pixels per side. This
    /// still reads all of its data.
    pub(crate) fn reduced<'a>(&'a mut self, example: &Example<'a>) -> Result<Reduced<'a>, String> {
        let stored = self.decoder.open(example).map_err(|e| e.to_string())?;
        let spec = check_size(example, &stored)?;
        if !is_photo(example) {
            self.scratch = false_colours::grey(Values::of(example), example.encoded);
            let (height, width) = (spec.height as usize, spec.width as usize);
            return Ok(Reduced { height, width, channels: 1, bytes: &self.scratch });
        }
        if stored.format() == Format::Raw {
            let (height, width) = (spec.height as usize, spec.width as usize);
            return Ok(Reduced { height, width, channels: spec.channels as usize, bytes: example.encoded });
        }
        // Even if only the luma is decoded, all data of the file is read.
        let channels = if stored.planes().is_some() { 1 } else { spec.channels };
        let enough = |reduction: &u32| spec.height.min(spec.width).div_ceil(*reduction) >= REDUCED;
        let reduction = [8, 4, 2].into_iter().find(enough).unwrap_or(1);
        let decoded = self.decoder.reduced(stored, example.encoded, reduction, channels, &mut self.scratch);
        let (height, width) = decoded.map_err(|e| e.to_string())?;
        Ok(Reduced { height, width, channels: channels as usize, bytes: &self.scratch })
    }
}

/// Reads the shape of a record's image from the file header. Returns an error if it differs from the size in the
/// record.
pub(crate) fn header(example: &Example<'_>) -> Result<ImageSpec, String> {
    check_size(example, &Decoder::default().open(example).map_err(|e| e.to_string())?)
}

/// Returns the shape of the upright image. Returns an error if the file's own size differs from the size in the record.
fn check_size(example: &Example<'_>, image: &OpenedImage<'_>) -> Result<ImageSpec, String> {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub height: usize,
    pub width: usize,
}

impl Size {
    /// Returns the size of a JPEG that is decoded at 1 / `reduction`.
    pub fn reduced(self, reduction: u32) -> Self {
        let side = |pixels: usize| pixels.div_ceil(reduction as usize);
        Self { height: side(self.height), width: side(self.width) }
    }
}

/// An image of interleaved RGB bytes in row order. The buffer is reused from image to image.
#[derive(Debug, Default)]
pub(super) struct Rgb {
    pub size: Size,
    /// True if the file is grey. The three channels are then equal.
    pub is_grey: bool,
    pub pixels: Vec<u8>,
}

impl Rgb {
    /// Resizes `from` to `size` with a triangle filter with antialiasing (BILINEAR in PIL). The result replaces this
    /// image.
    pub fn resize(&mut self, resizer: &mut PlaneResizer, from: &Rgb, size: Size) {
        let Size { height, width } = from.size;
        self.pixels.resize(3 * size.height * size.width, 0);
        (self.size, self.is_grey) = (size, from.is_grey);
        let shrink = (height as f64 / size.height as f64, width as f64 / size.width as f64);
        let source = Plane { bytes: &from.pixels[..3 * height * width], height, width, channels: 3 };
        resizer.run(source, shrink, &mut self.pixels, (size.height, size.width));
    }
}

// Shrinks a JPEG in its own colour space: luma and chroma are resized plane by plane, as the file stores them, and can
// be encoded directly.
//
// Resizing is linear, so resizing in RGB would give the same result except for rounding and clipping, but would need
// two colour conversions and process twice as many samples. Chroma samples are centred on the pixels that they cover
// (JFIF) and are resized from the file's resolution to the new resolution in one step.

/// Chroma subsampling of written files: half the height and half the width of luma.
pub(super) const SUBSAMPLING: Subsamp = Subsamp::Sub2x2;

/// The planes of an image before and after resizing. The buffers are reused from image to image.
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

    /// Returns a buffer for the planes of an image with this size.
    pub fn full(&mut self, size: Size, subsamp: Subsamp) -> &mut [u8] {
        set_shape(&mut self.full, size, subsamp);
        &mut self.full.pixels
    }

    /// Resizes the image that was decoded into `full`.
    pub fn resize(&mut self, size: Size) -> YuvImage<&[u8]> {
        set_shape(&mut self.small, size, SUBSAMPLING);
        let (full, small) = (&self.full, &mut self.small);
        // Number of `full` pixels per `small` pixel.
        let shrink = (full.height as f64 / size.height as f64, full.width as f64 / size.width as f64);
        let (from, to) = (plane_shapes(full), plane_shapes(small));
        let (mut source, mut target) = (full.pixels.as_slice(), small.pixels.as_mut_slice());
        for (i, (from, to)) in from.into_iter().zip(to).enumerate() {
            let (bytes, rest) = source.split_at(from.height * from.width);
            let (result, rest_of_target) = target.split_at_mut(to.height * to.width);
            let shrink = (to.pixels.0 * shrink.0 / from.pixels.0, to.pixels.1 * shrink.1 / from.pixels.1);
            let resizer = if i == 0 { &mut self.luma } else { &mut self.chroma };
            let plane = Plane { bytes, height: from.height, width: from.width, channels: 1 };
            resizer.run(plane, shrink, result, (to.height, to.width));
            (source, target) = (rest, rest_of_target);
        }
        self.small.as_deref()
    }
}

/// The size of a plane, and the number of pixel rows and columns that a sample covers.
struct PlaneShape {
    height: usize,
    width: usize,
    pixels: (f64, f64),
}

/// Returns the shapes of luma and both chroma planes in memory order. A luma sample covers one pixel.
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
