//! Decodes image formats that data sets cannot store (WebP, TIFF, BMP, GIF) to upright RGB with the `image` crate. Only
//! the first picture of a file is used.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};
use loaders::decode::{ExifOrientation, OtherFormat, other_format};
use loaders::{Cost, ImageSpec, Limits};
use tiff::ColorType;
use tiff::decoder::Decoder;
use tiff::tags::{PhotometricInterpretation as Colours, Tag};

use super::pixels::{Rgb, Size};
use crate::options::To8Bit;
use crate::raw::{check_first_directory, is_wide_png};

/// Bytes per pixel that a decoder may need in addition to its output.
const WORKING: u64 = 4;
/// Lower bound for the decoding speed in bytes of pixels per second.
const BYTES_PER_SECOND: f64 = 5e7;

/// The detected format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ForeignFormat {
    format: ImageFormat,
    name: &'static str,
    /// True if the compression is lossless.
    pub is_exact: bool,
}

impl ForeignFormat {
    /// Detects the format. Returns `None` for any other file.
    pub fn detect(file: &[u8]) -> Option<Self> {
        if is_wide_png(file) {
            return Some(ForeignFormat { format: ImageFormat::Png, name: "PNG", is_exact: true });
        }
        let (format, name) = match other_format(file)? {
            OtherFormat::WebP => (ImageFormat::WebP, "WebP"),
            OtherFormat::Tiff => (ImageFormat::Tiff, "TIFF"),
            OtherFormat::Bmp => (ImageFormat::Bmp, "BMP"),
            OtherFormat::Gif => (ImageFormat::Gif, "GIF"),
            _ => return None,
        };
        let is_exact = format != ImageFormat::WebP || !has_lossy_picture(file);
        Some(ForeignFormat { format, name, is_exact })
    }

    /// Decodes the file to upright RGB in `image`, replacing its content. Returns the transformation that was applied
    /// to turn the pixels upright. Returns a message if the file is damaged or, judged by its header, exceeds the
    /// limits for pixels, memory or time. The limits are checked before the pixels are decoded.
    pub fn decode(
        self,
        file: &[u8],
        limits: &Limits,
        to_8bit: Option<To8Bit>,
        image: &mut Rgb,
    ) -> Result<ExifOrientation, String> {
        let length = file.len() as u64;
        if self.format == ImageFormat::Tiff {
            check(file, to_8bit.is_some())?;
        }
        let mut reader = ImageReader::with_format(Cursor::new(file), self.format);
        let mut most = image::Limits::no_limits();
        most.max_alloc = Some(limits.allowed(length));
        reader.limits(most);
        let mut decoder = reader.into_decoder().map_err(|e| self.fault(e))?;
        let (width, height) = decoder.dimensions();
        let colour = decoder.color_type();
        let bits = 8 * colour.bytes_per_pixel() / colour.channel_count();
        if bits > 8 && to_8bit.is_none() {
            return Err(format!("a {} with {bits} bits per value; --to-8bit converts it", self.name));
        }
        let range = to_8bit.filter(|_| bits > 8).and_then(|scale| match scale {
            To8Bit::Whole => None,
            To8Bit::Range(min, max) => Some((min, max)),
        });
        let mut cost = self.cost(ImageSpec::new(height, width, 3), decoder.total_bytes());
        // Mapping a range to 8 bits needs a copy of the pixels in f32.
        let floats = if range.is_some() { 12 * u64::from(height) * u64::from(width) } else { 0 };
        cost.memory = cost.memory.saturating_add(floats);
        limits.check(self.name, length, &cost).map_err(|fault| fault.to_string())?;
        image.is_grey = !colour.has_color();
        // Free the previous image first, so that two images never need memory at the same time.
        drop(std::mem::take(&mut image.pixels));
        let orientation = self.orientation(&mut decoder)?;
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(|e| self.fault(e))?;
        decoded.apply_orientation(orientation);
        image.size = Size { height: decoded.height() as usize, width: decoded.width() as usize };
        image.pixels = match range {
            None => decoded.into_rgb8().into_raw(),
            Some((min, max)) => {
                let whole = if bits == 16 { 65535.0 } else { 1.0 };
                let scaled = |value: f32| ((f64::from(value) * whole - min) / (max - min) * 255.0).round();
                decoded
                    .into_rgb32f()
                    .into_raw()
                    .into_iter()
                    .map(|value| scaled(value).clamp(0.0, 255.0) as u8)
                    .collect()
            }
        };
        Ok(ExifOrientation::from_number(orientation.to_exif()))
    }

    /// Reads the EXIF orientation. Some programs prefix the EXIF data with `Exif\0\0`, as in a JPEG.
    fn orientation(self, decoder: &mut impl ImageDecoder) -> Result<Orientation, String> {
        let exif = decoder.exif_metadata().ok().flatten();
        match exif.as_deref().and_then(|data| data.strip_prefix(b"Exif\0\0")) {
            Some(data) => Ok(Orientation::from_exif_chunk(data).unwrap_or(Orientation::NoTransforms)),
            None => decoder.orientation().map_err(|e| self.fault(e)),
        }
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
                format!("the {name} exceeds the limits ({e}); scale it down first, or raise --limit-memory")
            }
            other => format!("cannot decode the {name}: {other}; save it as PNG or JPEG, or fetch it again"),
        }
    }
}

/// Returns true if the first picture of a WebP file has lossy compression.
fn has_lossy_picture(file: &[u8]) -> bool {
    /// Size of a chunk's name and length.
    const HEADER: usize = 8;
    /// Size of a frame's own header, which precedes its chunks.
    const FRAME: usize = 16;
    let mut rest = file.get(12..).unwrap_or(&[]);
    while let Some((header, body)) = rest.split_first_chunk::<HEADER>() {
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        match &header[..4] {
            b"VP8L" => return false,
            b"VP8 " => return true,
            // Continue with the chunks inside the frame.
            b"ANMF" => rest = body.get(FRAME..).unwrap_or(&[]),
            _ => rest = body.get(length.saturating_add(length % 2)..).unwrap_or(&[]),
        }
    }
    true
}

/// Values of the ExtraSamples tag that mark an extra band as opacity.
const ALPHA: [u16; 2] = [1, 2];

/// Rejects TIFF variants that cannot be decoded. Also rejects extra bands unless `may_lose` allows dropping them.
pub(super) fn check(file: &[u8], may_lose: bool) -> Result<(), String> {
    check_first_directory(file)?;
    // Files that cannot be opened are reported when they are decoded.
    let Ok(mut tiff) = Decoder::new(Cursor::new(file)) else { return Ok(()) };
    let number = |tiff: &mut Decoder<_>, tag| tiff.find_tag_unsigned::<u16>(tag).ok().flatten();
    let refused =
        |what: String| Err(format!("unsupported TIFF {what}; save it as PNG, or as a TIFF with 8-bit RGB or grey"));
    if number(&mut tiff, Tag::FillOrder) == Some(2) {
        return refused("with reversed bit order (FillOrder 2)".into());
    }
    let bands = usize::from(number(&mut tiff, Tag::SamplesPerPixel).unwrap_or(1));
    let bits = tiff.find_tag_unsigned_vec::<u16>(Tag::BitsPerSample).ok().flatten().unwrap_or_else(|| vec![1]);
    let depth = bits.first().copied().unwrap_or(1);
    let colours = match number(&mut tiff, Tag::PhotometricInterpretation).and_then(Colours::from_u16) {
        Some(Colours::WhiteIsZero | Colours::BlackIsZero)
            if !([8, 16, 32].contains(&depth) || depth == 1 && bands == 1) =>
        {
            return refused(format!("with {depth}-bit grey"));
        }
        Some(Colours::WhiteIsZero | Colours::BlackIsZero) => 1,
        Some(Colours::RGB) if ![8, 16, 32].contains(&depth) => return refused(format!("with {depth}-bit RGB")),
        Some(Colours::RGBPalette) => return refused(format!("with a palette of {depth} bits")),
        Some(Colours::YCbCr) if tiff.colortype().is_err() || matches!(tiff.colortype(), Ok(ColorType::YCbCr(_))) => {
            return refused(format!("with {depth}-bit YCbCr"));
        }
        Some(Colours::CIELab | Colours::IccLab | Colours::ItuLab) => {
            return refused(format!("with {depth}-bit CIELAB"));
        }
        Some(Colours::CMYK) => 4,
        _ => 3,
    };
    let extra = tiff.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).ok().flatten().unwrap_or_default();
    let kept = colours + extra.iter().filter(|kind| ALPHA.contains(kind)).count();
    match bands > kept && !may_lose {
        true => refused(format!("with {bands} bands")),
        false => Ok(()),
    }
}
