//! PNG files to RGB, by the `image` crate.

use super::file;
use super::limit;
use super::rgb::{Rgb, Size};
use image::codecs::png::PngDecoder;
use image::{DynamicImage, ImageDecoder};
use std::io::Cursor;

/// The last chunk of a PNG file, from its name on.
const END: &[u8] = b"IEND\xaeB\x60\x82";

/// A PNG file whose header has been read.
pub(super) struct PngFile<'a>(PngDecoder<Cursor<&'a [u8]>>);

impl<'a> PngFile<'a> {
    /// Reads the header; nothing is allocated for an image above the limit.
    pub fn open(file: &'a [u8]) -> Result<Self, String> {
        let decoder = PngDecoder::new(Cursor::new(file)).map_err(|e| format!("not a usable PNG file: {e}"))?;
        let opened = PngFile(decoder);
        limit::check(opened.size())?;
        match file::ends_with(file, END) {
            true => Ok(opened),
            false => Err("the PNG file is cut short: it has no end chunk".into()),
        }
    }

    /// The size by the header.
    pub fn size(&self) -> Size {
        let (width, height) = self.0.dimensions();
        Size { height: height as usize, width: width as usize }
    }

    /// Decodes the whole image.
    pub fn decode(self, image: &mut Rgb) -> Result<(), String> {
        image.size = self.size();
        image.is_grey = !self.0.color_type().has_color();
        let decoded = DynamicImage::from_decoder(self.0).map_err(|e| format!("cannot decode the PNG file: {e}"))?;
        image.pixels = decoded.into_rgb8().into_raw();
        Ok(())
    }
}
