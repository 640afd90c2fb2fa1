//! What images become: their size, format and quality, and how they are encoded as JPEG (by libjpeg-turbo) and PNG.

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, YuvImage};

use super::pixels::{Rgb, SUBSAMPLING, Size};
use crate::options::{ConvertOptions, To8Bit};

/// An error of libjpeg-turbo as a message.
fn message(error: turbojpeg::Error) -> String {
    match error {
        turbojpeg::Error::TurboJpegError(text) => format!("libjpeg-turbo says: {text}"),
        other => other.to_string(),
    }
}

/// An encoder of one thread with its buffer.
pub(super) struct JpegEncoder {
    encoder: Compressor,
    file: Vec<u8>,
}

impl JpegEncoder {
    pub fn new() -> turbojpeg::Result<Self> {
        Ok(JpegEncoder { encoder: Compressor::new()?, file: Vec::new() })
    }

    /// The JPEG of an RGB image; grey if the image is.
    pub fn rgb(&mut self, image: &Rgb, quality: u8) -> Result<&[u8], String> {
        let subsampling = match quality {
            _ if image.is_grey => Subsamp::Gray,
            100 => Subsamp::None,
            _ => SUBSAMPLING,
        };
        self.set_up(image.size, quality, subsampling).map_err(message)?;
        let Size { height, width } = image.size;
        let pixels = image.pixels.as_slice();
        let image = Image { pixels, width, pitch: 3 * width, height, format: PixelFormat::RGB };
        let length = self.encoder.compress_to_slice(image, &mut self.file).map_err(message)?;
        Ok(&self.file[..length])
    }

    /// The JPEG of an image in planes, with their subsampling.
    pub fn planes(&mut self, image: YuvImage<&[u8]>, quality: u8) -> Result<&[u8], String> {
        let size = Size { height: image.height, width: image.width };
        self.set_up(size, quality, image.subsamp).map_err(message)?;
        let length = self.encoder.compress_yuv_to_slice(image, &mut self.file).map_err(message)?;
        Ok(&self.file[..length])
    }

    /// Sets the encoder up and makes room for the largest file that an image of this size can become.
    fn set_up(&mut self, size: Size, quality: u8, subsampling: Subsamp) -> turbojpeg::Result<()> {
        self.encoder.set_quality(i32::from(quality))?;
        self.encoder.set_subsamp(subsampling)?;
        let most = self.encoder.buf_len(size.width, size.height)?;
        if self.file.len() < most {
            self.file.resize(most, 0);
        }
        Ok(())
    }
}

/// Writes the PNG of an RGB image, grey if the image is, in place of what `file` holds.
pub(super) fn png(image: &Rgb, file: &mut Vec<u8>) -> Result<(), String> {
    file.clear();
    let (width, height) = (image.size.width as u32, image.size.height as u32);
    let encoder = PngEncoder::new(file);
    let written = if image.is_grey {
        let grey: Vec<u8> = image.pixels.chunks_exact(3).map(|pixel| pixel[0]).collect();
        encoder.write_image(&grey, width, height, ExtendedColorType::L8)
    } else {
        encoder.write_image(&image.pixels, width, height, ExtendedColorType::Rgb8)
    };
    written.map_err(|e| format!("cannot be made a PNG: {e}"))
}

/// Quality of JPEGs where none is given.
const QUALITY: u8 = 90;
/// Quality of JPEGs that are written only because their source is no RGB JPEG, as in TensorFlow's scripts.
const REPAIR_QUALITY: u8 = 100;

/// What becomes of images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    resize: Option<u32>,
    quality: Option<u8>,
    /// Whether pixels are stored instead of files.
    pub(super) raw: bool,
    /// How to convert images with more than 8 bits or three bands. `None` rejects them.
    pub(super) to_8bit: Option<To8Bit>,
    /// Whether JPEGs get entry points.
    pub(super) entry_points: bool,
    png_as_jpeg: bool,
}

impl Target {
    /// The target of the options; with `png_as_jpeg` every PNG file becomes a JPEG.
    pub(crate) fn new(options: &ConvertOptions, png_as_jpeg: bool) -> Self {
        let &ConvertOptions { resize, quality, raw, to_8bit, entry_points, .. } = options;
        Target { resize, quality, raw, to_8bit, entry_points, png_as_jpeg }
    }

    /// Whether an RGB JPEG that is not resized is stored as it is.
    pub(super) fn keeps_jpeg(&self) -> bool {
        !self.raw && self.quality.is_none()
    }

    /// Whether a PNG that is not resized is stored as it is.
    pub(super) fn keeps_png(&self) -> bool {
        self.keeps_jpeg() && !self.png_as_jpeg
    }

    /// Whether a JPEG can be resized in its planes: the result has chroma of half the size.
    pub(super) fn keeps_planes(&self) -> bool {
        !self.raw && self.quality != Some(100)
    }

    /// Quality of a JPEG; `repaired` if it replaces a file of the same size that could not stay.
    pub(super) fn quality(&self, repaired: bool) -> u8 {
        self.quality.unwrap_or(if repaired { REPAIR_QUALITY } else { QUALITY })
    }

    /// The size that an image of size `stored` is scaled to, if it is: the short side as requested, the long one in
    /// proportion, cut to an integer (torchvision's rule). Images are never enlarged.
    pub(super) fn size(&self, stored: Size) -> Option<Size> {
        let short = self.resize? as usize;
        let Size { height, width } = stored;
        let long = |long: usize, of: usize| (short * long / of).max(1);
        match height.min(width) {
            least if least <= short => None,
            least if least == height => Some(Size { height: short, width: long(width, height) }),
            _ => Some(Size { height: long(height, width), width: short }),
        }
    }
}
