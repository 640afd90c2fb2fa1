//! From an image file to what its record holds: the file as it came, a smaller JPEG, or pixels.
//!
//! JPEG by libjpeg-turbo, PNG by the `image` crate, resizing by fast_image_resize. An EXIF
//! orientation is not applied: pixels stay as they are stored.

use crate::error::Error;
use crate::image::planes::{self, Planes};
use crate::options::ConvertOptions;
use crate::source::Sample;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use image::codecs::png::PngDecoder;
use image::{DynamicImage, ImageDecoder};
use loaders::Format;
use std::io::Cursor;
use turbojpeg::{Colorspace, Compressor, DecompressHeader, Decompressor, Image, PixelFormat, ScalingFactor, Subsamp};

/// Bytes of RGB pixels of the largest image that is taken: a hostile header must not cost the memory that
/// it names. The number of pixels is that at which Pillow speaks of a decompression bomb.
pub(crate) const MAX_BYTES: u64 = 1 << 29;
/// Second bytes of JPEG's markers of a frame: baseline, extended, progressive, lossless.
const START_OF_FRAME: std::ops::RangeInclusive<u8> = 0xc0..=0xc3;

/// Of SOS.
const START_OF_SCAN: std::ops::RangeInclusive<u8> = 0xda..=0xda;

/// Quality of JPEGs, where none is asked for.
const QUALITY: u8 = 90;
/// Quality of JPEGs that are written only because their source is no RGB JPEG, as TensorFlow's scripts have it.
const REPAIR_QUALITY: u8 = 100;
/// The most scans of a progressive JPEG; ordinary ones have about ten, hostile ones as many as fit.
const MAX_SCANS: u32 = 500;
/// A scaled decode must leave at least this many times the pixels wanted on each side.
const HEADROOM: usize = 2;
/// Bytes at the end of a file in which its end marker is looked for: some files have a little more behind it.
const TAIL: usize = 1 << 16;

/// What becomes of images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    resize: Option<u32>,
    quality: Option<u8>,
    raw: bool,
    png_as_jpeg: bool,
}

impl Target {
    /// As the options say; `png_as_jpeg`: a PNG that could stay as it is becomes a JPEG nevertheless.
    pub(crate) fn new(options: &ConvertOptions, png_as_jpeg: bool) -> Self {
        Target { resize: options.resize, quality: options.quality, raw: options.raw, png_as_jpeg }
    }

    /// Whether a JPEG that is made smaller may keep its planes: what comes out has chroma of half the size.
    fn keeps_planes(&self) -> bool {
        !self.raw && self.quality != Some(100)
    }

    /// Height and width that an image is scaled to, if it is: the short side as asked for, the long one in
    /// proportion, cut to an integer (torchvision's rule). Never up.
    fn size(&self, height: usize, width: usize) -> Option<(usize, usize)> {
        let short = self.resize? as usize;
        let long = |long: usize, of: usize| (short * long / of).max(1);
        match height.min(width) {
            least if least <= short => None,
            least if least == height => Some((short, long(width, height))),
            _ => Some((long(height, width), short)),
        }
    }
}

/// One thread's decoder, resizer, encoder and their buffers, which keep their memory from image to image.
pub(crate) struct Recoder {
    target: Target,
    decoder: Decompressor,
    encoder: Compressor,
    resizer: Resizer,
    /// RGB pixels of the file.
    full: Vec<u8>,
    /// RGB pixels of the size wanted.
    small: Vec<u8>,
    planes: Planes,
    file: Vec<u8>,
}

/// A decoded file: its size, and whether it has no colours.
struct Decoded {
    height: usize,
    width: usize,
    grey: bool,
}

impl Recoder {
    pub(crate) fn new(target: Target) -> Result<Self, Error> {
        let failed = |e: turbojpeg::Error| Error::Codec(e.to_string());
        let decoder = decoder().map_err(failed)?;
        Ok(Recoder {
            target,
            decoder,
            encoder: Compressor::new().map_err(failed)?,
            resizer: Resizer::new(),
            full: Vec::new(),
            small: Vec::new(),
            planes: Planes::new(),
            file: Vec::new(),
        })
    }

    /// Turns the file in `sample` into what its record holds and fills in format and size. RAW stays as it is.
    /// Files count as RGB, grey ones too.
    ///
    /// # Errors
    /// What is wrong with the file, in words.
    pub(crate) fn recode(&mut self, sample: &mut Sample) -> Result<(), String> {
        if sample.format == Format::Raw && sample.height > 0 {
            return Ok(());
        }
        sample.format = format(&sample.encoded)?;
        sample.channels = 3;
        match sample.format {
            Format::Png => self.recode_png(sample),
            _ => self.recode_jpeg(sample),
        }
    }

    fn recode_jpeg(&mut self, sample: &mut Sample) -> Result<(), String> {
        let header = self.jpeg_header(&sample.encoded)?;
        let size = self.target.size(header.height, header.width);
        let cmyk = matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK);
        if !self.target.raw && self.target.quality.is_none() && size.is_none() && !cmyk {
            (sample.height, sample.width) = (header.height as u32, header.width as u32);
            return Ok(());
        }
        if let Some(size) = size.filter(|_| self.target.keeps_planes() && planes::suits(&header)) {
            return self.shrink_jpeg(&header, size, sample);
        }
        let decoded = self.decode_jpeg(&sample.encoded, &header, size)?;
        let only_repaired = size.is_none() && cmyk;
        self.store(decoded, size, only_repaired, sample)
    }

    /// A smaller JPEG of a JPEG, by way of its planes.
    fn shrink_jpeg(
        &mut self,
        header: &DecompressHeader,
        size: (usize, usize),
        sample: &mut Sample,
    ) -> Result<(), String> {
        let scale = scale(header, size);
        self.decoder.set_scaling_factor(scale).map_err(words)?;
        let DecompressHeader { height, width, .. } = header.scaled(scale);
        let full = self.planes.full(height, width, header.subsamp);
        pass_harmless(self.decoder.decompress_to_yuv(&sample.encoded, full))?;
        let small = self.planes.resize(size.0, size.1);
        (sample.height, sample.width) = (size.0 as u32, size.1 as u32);
        let quality = self.target.quality.unwrap_or(QUALITY);
        let file = make_room(&mut self.encoder, size, quality, small.subsamp, &mut self.file).map_err(words)?;
        let length = self.encoder.compress_yuv_to_slice(small, file).map_err(words)?;
        self.keep_file(length, sample);
        Ok(())
    }

    fn recode_png(&mut self, sample: &mut Sample) -> Result<(), String> {
        let decoder = png(&sample.encoded)?;
        let (width, height) = decoder.dimensions();
        let size = self.target.size(height as usize, width as usize);
        let asked = self.target.raw || self.target.quality.is_some() || size.is_some();
        if !asked && !self.target.png_as_jpeg {
            (sample.height, sample.width) = (height, width);
            return Ok(());
        }
        let decoded = self.decode_png(decoder)?;
        self.store(decoded, size, size.is_none(), sample)
    }

    /// Puts the image in `full` into the sample, scaled to `size`.
    fn store(
        &mut self,
        decoded: Decoded,
        size: Option<(usize, usize)>,
        repaired: bool,
        sample: &mut Sample,
    ) -> Result<(), String> {
        let (height, width) = size.unwrap_or((decoded.height, decoded.width));
        if size.is_some() {
            self.resize(&decoded, height, width)?;
        }
        let pixels = if size.is_some() { &mut self.small } else { &mut self.full };
        (sample.height, sample.width) = (height as u32, width as u32);
        if self.target.raw {
            sample.format = Format::Raw;
            std::mem::swap(&mut sample.encoded, pixels);
            return Ok(());
        }
        let quality = self.target.quality.unwrap_or(if repaired { REPAIR_QUALITY } else { QUALITY });
        let subsampling = match quality {
            _ if decoded.grey => Subsamp::Gray,
            100 => Subsamp::None,
            _ => planes::SUBSAMPLING,
        };
        let image = Image { pixels: pixels.as_slice(), width, pitch: 3 * width, height, format: PixelFormat::RGB };
        let size = (height, width);
        let file = make_room(&mut self.encoder, size, quality, subsampling, &mut self.file).map_err(words)?;
        let length = self.encoder.compress_to_slice(image, file).map_err(words)?;
        self.keep_file(length, sample);
        Ok(())
    }

    /// Makes the JPEG of this length in `file` the sample's.
    fn keep_file(&self, length: usize, sample: &mut Sample) {
        sample.format = Format::Jpeg;
        sample.encoded.clear();
        sample.encoded.extend_from_slice(&self.file[..length]);
    }

    fn resize(&mut self, from: &Decoded, height: usize, width: usize) -> Result<(), String> {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.small.resize(3 * height * width, 0);
        // the one pixel type that is needed: `resize` would compile all of them
        let source = TypedImageRef::<U8x3>::from_buffer(from.width as u32, from.height as u32, &self.full);
        let source = source.map_err(|e| e.to_string())?;
        let result = TypedImage::<U8x3>::from_buffer(width as u32, height as u32, &mut self.small);
        let mut result = result.map_err(|e| e.to_string())?;
        self.resizer.resize_typed(&source, &mut result, &options).map_err(|e| e.to_string())
    }

    /// RGB pixels of the image in a finished sample, as they will be trained on.
    pub(crate) fn pixels<'a>(&'a mut self, sample: &'a Sample) -> Result<&'a [u8], String> {
        match sample.format {
            Format::Raw => return Ok(&sample.encoded),
            Format::Png => {
                self.decode_png(png(&sample.encoded)?)?;
            }
            Format::Jpeg => {
                let header = self.jpeg_header(&sample.encoded)?;
                self.decode_jpeg(&sample.encoded, &header, None)?;
            }
        }
        Ok(&self.full)
    }

    fn jpeg_header(&mut self, file: &[u8]) -> Result<DecompressHeader, String> {
        let has = |markers: std::ops::RangeInclusive<u8>| {
            file.windows(2).any(|pair| pair[0] == 0xff && markers.contains(&pair[1]))
        };
        let empty = || Err("the JPEG file holds no image (cut short?)".into());
        // libjpeg accepts files of tables alone, and what it then says of a size is chance
        if !has(START_OF_FRAME) {
            return empty();
        }
        let header = match self.decoder.read_header(file) {
            Ok(header) => header,
            Err(error) => {
                // A decoder that has failed in a header tells the next file's size wrong.
                self.decoder = decoder().map_err(words)?;
                return Err(words(error));
            }
        };
        if !has(START_OF_SCAN) {
            return empty();
        }
        check_size(header.height as u64, header.width as u64)?;
        if !ends_with(file, &[0xff, 0xd9]) {
            return Err("the JPEG file is cut short: it has no end marker".into());
        }
        Ok(header)
    }

    /// Decodes into `full`, at a fraction of the size where the `wanted` one is much smaller.
    fn decode_jpeg(
        &mut self,
        file: &[u8],
        header: &DecompressHeader,
        wanted: Option<(usize, usize)>,
    ) -> Result<Decoded, String> {
        let scale = wanted.map_or(ScalingFactor::ONE, |wanted| scale(header, wanted));
        self.decoder.set_scaling_factor(scale).map_err(words)?;
        let DecompressHeader { height, width, .. } = header.scaled(scale);
        let cmyk = matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK);
        let format = if cmyk { PixelFormat::CMYK } else { PixelFormat::RGB };
        let pitch = width * format.size();
        self.full.resize(pitch * height, 0);
        let image = Image { pixels: self.full.as_mut_slice(), width, pitch, height, format };
        pass_harmless(self.decoder.decompress(file, image))?;
        if cmyk {
            cmyk_to_rgb(&mut self.full, has_adobe_marker(file));
        }
        Ok(Decoded { height, width, grey: header.colorspace == Colorspace::Gray })
    }

    fn decode_png(&mut self, decoder: PngDecoder<Cursor<&[u8]>>) -> Result<Decoded, String> {
        let (width, height) = decoder.dimensions();
        let grey = !decoder.color_type().has_color();
        let image = DynamicImage::from_decoder(decoder).map_err(|e| format!("cannot decode the PNG file: {e}"))?;
        self.full = image.into_rgb8().into_raw();
        Ok(Decoded { height: height as usize, width: width as usize, grey })
    }
}

fn decoder() -> turbojpeg::Result<Decompressor> {
    let mut decoder = Decompressor::new()?;
    decoder.set_scan_limit(MAX_SCANS)?;
    Ok(decoder)
}

/// Sets the encoder up, and lends it memory for any file of an image of this (height, width).
fn make_room<'a>(
    encoder: &mut Compressor,
    (height, width): (usize, usize),
    quality: u8,
    subsampling: Subsamp,
    file: &'a mut Vec<u8>,
) -> turbojpeg::Result<&'a mut [u8]> {
    encoder.set_quality(i32::from(quality))?;
    encoder.set_subsamp(subsampling)?;
    let most = encoder.buf_len(width, height)?;
    if file.len() < most {
        file.resize(most, 0);
    }
    Ok(file)
}

/// What a file is by its first bytes, whatever its name.
fn format(file: &[u8]) -> Result<Format, String> {
    if file.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Ok(Format::Png);
    }
    if file.starts_with(&[0xff, 0xd8]) {
        return Ok(Format::Jpeg);
    }
    if file.is_empty() {
        return Err("the file is empty (0 bytes)".into());
    }
    let head = &file[..file.len().min(16)];
    Err(format!("neither a PNG nor a JPEG file: it starts with \"{}\"", head.escape_ascii()))
}

/// A decoder behind the header of a PNG file; nothing is allocated for a size beyond the limit.
fn png(file: &[u8]) -> Result<PngDecoder<Cursor<&[u8]>>, String> {
    let decoder = PngDecoder::new(Cursor::new(file)).map_err(|e| format!("not a usable PNG file: {e}"))?;
    let (width, height) = decoder.dimensions();
    check_size(u64::from(height), u64::from(width))?;
    match ends_with(file, b"IEND\xaeB\x60\x82") {
        true => Ok(decoder),
        false => Err("the PNG file is cut short: it has no end chunk".into()),
    }
}

fn check_size(height: u64, width: u64) -> Result<(), String> {
    if height == 0 || width == 0 {
        return Err(format!("an image of {height} x {width} pixels"));
    }
    match height.saturating_mul(width).saturating_mul(3) {
        bytes if bytes > MAX_BYTES => Err(format!(
            "an image of {height} x {width} pixels takes {bytes} bytes; the limit is {MAX_BYTES}: scale it down first"
        )),
        _ => Ok(()),
    }
}

/// Whether `marker` stands in the last bytes of a file.
fn ends_with(file: &[u8], marker: &[u8]) -> bool {
    let tail = &file[file.len().saturating_sub(TAIL)..];
    tail.windows(marker.len()).rev().any(|window| window == marker)
}

/// The smallest of 1, 1/2, 1/4 and 1/8 that leaves [`HEADROOM`] times the wanted pixels on each side.
fn scale(header: &DecompressHeader, (height, width): (usize, usize)) -> ScalingFactor {
    let enough = |factor: &ScalingFactor| {
        factor.scale(header.height) >= HEADROOM * height && factor.scale(header.width) >= HEADROOM * width
    };
    let factors = [ScalingFactor::ONE_EIGHTH, ScalingFactor::ONE_QUARTER, ScalingFactor::ONE_HALF];
    factors.into_iter().find(|f| !header.is_lossless && enough(f)).unwrap_or(ScalingFactor::ONE)
}

/// CMYK to RGB in place, as TensorFlow's decoder has it: each ink takes its share of what black leaves. Adobe's
/// files hold the inks inverted.
fn cmyk_to_rgb(pixels: &mut Vec<u8>, inverted: bool) {
    let count = pixels.len() / 4;
    for i in 0..count {
        let [c, m, y, k] = [0, 1, 2, 3].map(|j| {
            let ink = u32::from(pixels[4 * i + j]);
            if inverted { ink } else { 255 - ink }
        });
        for (j, ink) in [c, m, y].into_iter().enumerate() {
            pixels[3 * i + j] = (ink * k / 255) as u8;
        }
    }
    pixels.truncate(3 * count);
}

fn has_adobe_marker(file: &[u8]) -> bool {
    file.windows(9).take(TAIL).any(|w| w[..2] == [0xff, 0xee] && &w[4..] == b"Adobe")
}

/// What decoding says, but for warnings that mean nothing.
fn pass_harmless(decoded: turbojpeg::Result<()>) -> Result<(), String> {
    match decoded {
        Err(error) if !is_harmless(&error) => Err(words(error)),
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

fn words(error: turbojpeg::Error) -> String {
    match error {
        turbojpeg::Error::TurboJpegError(text) => format!("libjpeg-turbo says: {text}"),
        other => other.to_string(),
    }
}
