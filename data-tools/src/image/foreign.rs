//! Image files of formats that data sets do not hold (WebP, TIFF, BMP, GIF; of several pictures the first), to upright RGB, by the
//! `image` crate.

use super::rgb::{Rgb, Size};
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};
use loaders::decode::{Turn, other_format};
use loaders::{Cost, ImageSpec, Limits};
use std::io::Cursor;

/// Bytes that a decoder may keep for each pixel beside the pixels that it returns.
const WORKING: u64 = 4;
/// Bytes of pixels that are unpacked in a second, at least.
const BYTES_PER_SECOND: f64 = 5e7;

/// A file of such a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign {
    format: ImageFormat,
    name: &'static str,
    /// Whether its pixels are what was stored; else it was coded with losses, as a photo is.
    pub is_exact: bool,
}

impl Foreign {
    /// The format of a file, if it is one of these.
    pub fn of(file: &[u8]) -> Option<Self> {
        let (format, name) = match other_format(file)? {
            "a WebP file" => (ImageFormat::WebP, "WebP"),
            "a TIFF file" => (ImageFormat::Tiff, "TIFF"),
            "a BMP file" => (ImageFormat::Bmp, "BMP"),
            "a GIF file" => (ImageFormat::Gif, "GIF"),
            _ => return None,
        };
        let is_exact = format != ImageFormat::WebP || !has_lossy_picture(file);
        Some(Foreign { format, name, is_exact })
    }

    /// Decodes the file to upright RGB, in place of what `image` holds; returns how its pixels were turned.
    ///
    /// # Errors
    /// A message: damage, or more pixels, memory or time than the limits allow, by the header, before any of it is spent.
    pub fn decode(self, file: &[u8], limits: &Limits, image: &mut Rgb) -> Result<Turn, String> {
        let length = file.len() as u64;
        let mut reader = ImageReader::with_format(Cursor::new(file), self.format);
        let mut most = image::Limits::no_limits();
        most.max_alloc = Some(limits.allowed(length));
        reader.limits(most);
        let mut decoder = reader.into_decoder().map_err(|e| self.fault(e))?;
        let (width, height) = decoder.dimensions();
        let cost = self.cost(ImageSpec::new(height, width, 3), decoder.total_bytes());
        limits.check(self.name, length, &cost).map_err(|fault| fault.to_string())?;
        image.is_grey = !decoder.color_type().has_color();
        // the memory of an earlier image is not held beside that of this one
        drop(std::mem::take(&mut image.pixels));
        let orientation = decoder.orientation().map_err(|e| self.fault(e))?;
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(|e| self.fault(e))?;
        decoded.apply_orientation(orientation);
        image.size = Size { height: decoded.height() as usize, width: decoded.width() as usize };
        image.pixels = decoded.into_rgb8().into_raw();
        Ok(Turn::of_number(orientation.to_exif()))
    }

    fn cost(self, spec: ImageSpec, stored: u64) -> Cost {
        let pixels = spec.pixels() as u64;
        let memory = stored.saturating_add((3 + WORKING).saturating_mul(pixels));
        Cost { spec, memory, scans: 1, seconds: 3.0 * pixels as f64 / BYTES_PER_SECOND }
    }

    fn fault(self, error: ImageError) -> String {
        let name = self.name;
        match error {
            ImageError::Limits(e) => {
                format!("the {name} asks for more than is allowed ({e}); scale it down first, or raise --limit-memory")
            }
            other => format!("cannot decode the {name}: {other}; save it as PNG or JPEG, or fetch it again"),
        }
    }
}

/// Whether the first picture of a WebP file was coded with losses.
fn has_lossy_picture(file: &[u8]) -> bool {
    /// Bytes of a chunk's name and length.
    const HEADER: usize = 8;
    /// Where the chunks of a frame start behind its own header.
    const FRAME: usize = 16;
    let mut rest = file.get(12..).unwrap_or(&[]);
    while let Some((header, body)) = rest.split_first_chunk::<HEADER>() {
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        match &header[..4] {
            b"VP8L" => return false,
            b"VP8 " => return true,
            // the chunks of a frame follow its header
            b"ANMF" => rest = body.get(FRAME..).unwrap_or(&[]),
            _ => rest = body.get(length.saturating_add(length % 2)..).unwrap_or(&[]),
        }
    }
    true
}
