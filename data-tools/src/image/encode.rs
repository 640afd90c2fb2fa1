//! Images to JPEG files, by libjpeg-turbo, and to PNG files.

use super::planes::SUBSAMPLING;
use super::rgb::{Rgb, Size};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, YuvImage};

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
