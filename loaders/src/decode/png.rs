//! PNG by the `image` crate: always the whole image.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError};

use crate::fault::Fault;
use crate::spec::ImageSpec;

/// A PNG file whose header has been read.
pub(crate) struct Png<'a>(Box<PngDecoder<Cursor<&'a [u8]>>>);

impl<'a> Png<'a> {
    /// Reads the header of a file.
    pub fn open(file: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self(Box::new(PngDecoder::new(Cursor::new(file)).map_err(failed)?)))
    }

    /// The shape of the image: grey or RGB, without alpha.
    pub fn spec(&self) -> ImageSpec {
        let (width, height) = self.0.dimensions();
        ImageSpec::new(height, width, if self.0.color_type().has_color() { 3 } else { 1 })
    }

    /// Decodes the image to `channels` (1 or 3) into `pixels`, which keeps its memory.
    pub fn decode(self, channels: u32, pixels: &mut Vec<u8>) -> Result<(), Fault> {
        let direct = match self.0.color_type() {
            ColorType::L8 => channels == 1,
            ColorType::Rgb8 => true,
            _ => false,
        };
        let values = ImageSpec { channels, ..self.spec() }.values();
        pixels.clear();
        if direct {
            pixels.resize(values, 0);
            return self.0.read_image(pixels).map_err(failed);
        }
        let image = DynamicImage::from_decoder(*self.0).map_err(failed)?;
        match channels {
            3 => pixels.extend_from_slice(&image.into_rgb8()),
            _ => pixels.extend_from_slice(&image.into_luma8()),
        }
        Ok(())
    }
}

fn failed(error: ImageError) -> Fault {
    Fault::Decode { format: "PNG", problem: error.to_string() }
}
