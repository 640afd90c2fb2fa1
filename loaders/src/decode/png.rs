//! Decodes PNG with the `image` crate, always the whole image.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError};

use crate::decode::region::ExifOrientation;
use crate::fault::Fault;
use crate::memory::{Cost, Limits};
use crate::spec::ImageSpec;

/// Memory limit for the unpacked parts of a file other than its pixels. A colour profile needs only kilobytes.
const EXTRAS: u64 = 16 << 20;
/// The last chunk of a file, starting with its name.
const END: &[u8] = b"IEND\xaeB\x60\x82";
/// Number of bytes at the end of a file in which the `IEND` chunk is searched. Some files have other bytes after it.
const TAIL: usize = 1 << 16;
/// A lower bound on how many pixel bytes are unpacked per second, for estimating the CPU time.
const BYTES_PER_SECOND: f64 = 2e8;

/// A PNG file with a parsed header.
pub(crate) struct Png<'a> {
    decoder: Box<PngDecoder<Cursor<&'a [u8]>>>,
    pub turn: ExifOrientation,
    file_limits: FileLimits,
}

/// Data for the error message of a file that needs too much memory.
#[derive(Clone, Copy)]
struct FileLimits {
    limits: Limits,
    length: u64,
}

impl<'a> Png<'a> {
    pub fn open(file: &'a [u8], limits: Limits) -> Result<Self, Fault> {
        let file_limits = FileLimits { limits, length: file.len() as u64 };
        let mut most = image::Limits::no_limits();
        most.max_alloc = Some(EXTRAS.saturating_add(file_limits.length.saturating_mul(4)));
        let mut decoder = PngDecoder::with_limits(Cursor::new(file), most).map_err(|error| file_limits.fault(error))?;
        let exif = decoder.exif_metadata().ok().flatten();
        let turn = exif.map_or_else(ExifOrientation::default, |data| ExifOrientation::from_exif(&data));
        let png = Self { decoder: Box::new(decoder), turn, file_limits };
        limits.check("PNG", file_limits.length, &png.cost())?;
        let tail = &file[file.len().saturating_sub(TAIL)..];
        match memchr::memmem::rfind(tail, END) {
            Some(_) => Ok(png),
            None => Err(failed("it is cut short: it has no end chunk".into())),
        }
    }

    /// Returns the shape of the image: grey or RGB, without alpha.
    pub fn spec(&self) -> ImageSpec {
        let (width, height) = self.decoder.dimensions();
        ImageSpec::new(height, width, if self.decoder.color_type().has_color() { 3 } else { 1 })
    }

    /// Returns the cost of decoding. The memory is for the pixels as stored, and for copies if they must be converted
    /// to RGB or turned.
    pub fn cost(&self) -> Cost {
        let (spec, colour) = (self.spec(), self.decoder.color_type());
        let stored = self.decoder.total_bytes();
        let converted = if colour == ColorType::Rgb8 { 0 } else { 3 * spec.pixels() as u64 };
        // Turning an image needs a second copy of its pixels, as RGB.
        let turned = if self.turn.is_none() { 0 } else { 3 * spec.pixels() as u64 };
        let memory = stored.saturating_add(converted).saturating_add(turned);
        Cost { spec, memory, scans: 1, seconds: stored as f64 / BYTES_PER_SECOND }
    }

    /// Decodes the image to `channels` (1 or 3) into `pixels`, which can be reused.
    pub fn decode(self, channels: u32, pixels: &mut Vec<u8>) -> Result<(), Fault> {
        let direct = match self.decoder.color_type() {
            ColorType::L8 => channels == 1,
            ColorType::Rgb8 => true,
            _ => false,
        };
        let values = ImageSpec { channels, ..self.spec() }.values();
        let Self { decoder, file_limits, .. } = self;
        pixels.clear();
        if direct {
            pixels.resize(values, 0);
            return decoder.read_image(pixels).map_err(|error| file_limits.fault(error));
        }
        // Free the memory of an earlier image before this one needs its own.
        drop(std::mem::take(pixels));
        let image = DynamicImage::from_decoder(*decoder).map_err(|error| file_limits.fault(error))?;
        *pixels = match channels {
            3 => image.into_rgb8().into_raw(),
            _ => image.into_luma8().into_raw(),
        };
        Ok(())
    }
}

impl FileLimits {
    fn fault(self, error: ImageError) -> Fault {
        match error {
            ImageError::Limits(_) => self.limits.memory_fault("PNG", self.length, None),
            other => failed(other.to_string()),
        }
    }
}

fn failed(problem: String) -> Fault {
    Fault::Decode { format: "PNG", problem }
}
