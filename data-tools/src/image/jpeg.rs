//! JPEG files to RGB, or to their planes, by libjpeg-turbo; at a fraction of the size where a much smaller image is wanted.

use super::planes::Planes;
use super::rgb::{Rgb, Size};
use super::{cmyk, file, limit};
use turbojpeg::{DecompressHeader, Decompressor, Image, PixelFormat, ScalingFactor};

/// Second bytes of JPEG's frame markers: baseline, extended, progressive, lossless.
const START_OF_FRAME: std::ops::RangeInclusive<u8> = 0xc0..=0xc3;
/// Second byte of JPEG's scan marker.
const START_OF_SCAN: std::ops::RangeInclusive<u8> = 0xda..=0xda;
/// The most scans of a progressive JPEG; ordinary ones have about ten, hostile ones as many as fit.
const MAX_SCANS: u32 = 500;
/// A scaled decode must leave at least this many times the pixels wanted on each side.
const HEADROOM: usize = 2;

/// A decoder of one thread.
pub(super) struct JpegDecoder(Decompressor);

impl JpegDecoder {
    pub fn new() -> turbojpeg::Result<Self> {
        let mut decoder = Decompressor::new()?;
        decoder.set_scan_limit(MAX_SCANS)?;
        Ok(JpegDecoder(decoder))
    }

    /// Reads the header of a file that holds an image below the limit, up to its end marker.
    pub fn header(&mut self, file: &[u8]) -> Result<DecompressHeader, String> {
        let has = |markers: std::ops::RangeInclusive<u8>| {
            file.windows(2).any(|pair| pair[0] == 0xff && markers.contains(&pair[1]))
        };
        let empty = || Err("the JPEG file holds no image (cut short?)".into());
        // libjpeg accepts files of tables alone, and then reports an arbitrary size.
        if !has(START_OF_FRAME) {
            return empty();
        }
        let header = self.read_header(file)?;
        if !has(START_OF_SCAN) {
            return empty();
        }
        limit::check(Size { height: header.height, width: header.width })?;
        match file::ends_with(file, &[0xff, 0xd9]) {
            true => Ok(header),
            false => Err("the JPEG file is cut short: it has no end marker".into()),
        }
    }

    /// A decoder that has failed in a header reports a wrong size for the next file, so it is replaced.
    fn read_header(&mut self, file: &[u8]) -> Result<DecompressHeader, String> {
        self.0.read_header(file).map_err(|error| match Self::new() {
            Ok(fresh) => {
                *self = fresh;
                message(error)
            }
            Err(other) => message(other),
        })
    }

    /// Decodes to RGB, at a fraction of the size where the `wanted` one is much smaller.
    pub fn decode(
        &mut self,
        file: &[u8],
        header: &DecompressHeader,
        wanted: Option<Size>,
        image: &mut Rgb,
    ) -> Result<(), String> {
        let Size { height, width } = self.set_scale(header, wanted)?;
        let is_cmyk = cmyk::is_cmyk(header);
        let format = if is_cmyk { PixelFormat::CMYK } else { PixelFormat::RGB };
        let pitch = width * format.size();
        image.pixels.resize(pitch * height, 0);
        let target = Image { pixels: image.pixels.as_mut_slice(), width, pitch, height, format };
        pass_harmless(self.0.decompress(file, target))?;
        if is_cmyk {
            cmyk::to_rgb(&mut image.pixels, cmyk::has_adobe_marker(file));
        }
        image.size = Size { height, width };
        image.is_grey = header.colorspace == turbojpeg::Colorspace::Gray;
        Ok(())
    }

    /// Decodes to the planes of the file, at a fraction of the size where the `wanted` one is much smaller.
    pub fn decode_planes(
        &mut self,
        file: &[u8],
        header: &DecompressHeader,
        wanted: Size,
        planes: &mut Planes,
    ) -> Result<(), String> {
        let size = self.set_scale(header, Some(wanted))?;
        pass_harmless(self.0.decompress_to_yuv(file, planes.full(size, header.subsamp)))
    }

    /// Chooses the fraction for the next decode; returns the size that will come out.
    fn set_scale(&mut self, header: &DecompressHeader, wanted: Option<Size>) -> Result<Size, String> {
        let scale = wanted.map_or(ScalingFactor::ONE, |wanted| scale(header, wanted));
        self.0.set_scaling_factor(scale).map_err(message)?;
        let DecompressHeader { height, width, .. } = header.scaled(scale);
        Ok(Size { height, width })
    }
}

/// The smallest of 1, 1/2, 1/4 and 1/8 that leaves [`HEADROOM`] times the wanted pixels on each side.
fn scale(header: &DecompressHeader, wanted: Size) -> ScalingFactor {
    let enough = |factor: &ScalingFactor| {
        factor.scale(header.height) >= HEADROOM * wanted.height && factor.scale(header.width) >= HEADROOM * wanted.width
    };
    let factors = [ScalingFactor::ONE_EIGHTH, ScalingFactor::ONE_QUARTER, ScalingFactor::ONE_HALF];
    factors.into_iter().find(|f| !header.is_lossless && enough(f)).unwrap_or(ScalingFactor::ONE)
}

/// The error of a decode, unless it is a harmless warning.
fn pass_harmless(decoded: turbojpeg::Result<()>) -> Result<(), String> {
    match decoded {
        Err(error) if !is_harmless(&error) => Err(message(error)),
        _ => Ok(()),
    }
}

/// Warnings of libjpeg after which all pixels are there: stray bytes between segments, odd header fields.
fn is_harmless(error: &turbojpeg::Error) -> bool {
    let text = error.to_string();
    [
        "extraneous bytes before marker",
        "Invalid SOS parameters",
        "unknown JFIF revision",
        "Unknown Adobe color transform",
    ]
    .iter()
    .any(|warning| text.contains(warning))
}

/// An error of libjpeg-turbo as a message.
pub(super) fn message(error: turbojpeg::Error) -> String {
    match error {
        turbojpeg::Error::TurboJpegError(text) => format!("libjpeg-turbo says: {text}"),
        other => other.to_string(),
    }
}
