//! Converts an image file to the content of its record: the unchanged file, another file (such as a smaller JPEG), or
//! pixels. The decoder is the one that training uses, so every converted file can be trained on. Files in other formats
//! than JPEG and PNG become PNGs or JPEGs.
//!
//! An unchanged file keeps its EXIF orientation, and its boxes are not changed: readers apply the orientation to both. If
//! pixels are decoded, the orientation is applied to the pixels and to the boxes.

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use loaders::decode::{Decoder, ExifOrientation, OpenedImage, entry_points};
use loaders::example::BoundingBox;
use loaders::{Cost, Dtype, Fault, Format, ImageSpec, Limits, PlaneResizer, guarded_with};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, YuvImage};

use super::foreign::ForeignFormat;
use super::pixels::{Planes, Rgb, SUBSAMPLING, Size};
use crate::error::Error;
use crate::options::{ConvertOptions, To8Bit};
use crate::raw::{self, Page, RawFormat, RawImage, RawOptions};
use crate::source::Sample;

/// An image that is decoded at reduced size must have at least this many times the target's pixels per side, so that
/// resizing has enough detail.
const HEADROOM: usize = 2;
/// Number of copies of RAW pixels on their way to a shard: the image, its record, and the chunk of records, which grows
/// by doubling.
const COPIES: u64 = 4;

/// The decoder, resizer and encoder of one thread. Their buffers are reused from image to image.
pub(crate) struct Recoder<'a> {
    target: Target<'a>,
    limits: Limits,
    decoder: Decoder,
    encoder: JpegEncoder,
    resizer: PlaneResizer,
    /// The last decoded image, at full or reduced size.
    full: Rgb,
    /// `full`, resized to the size that is stored.
    small: Rgb,
    planes: Planes,
    png: Vec<u8>,
    /// The value that marks pixels without data in the last image. These pixels have not been replaced yet.
    pub(crate) nodata: Option<f64>,
    /// The ignored properties in the last image's file.
    pub(crate) ignored: Ignored,
}

/// TIFF properties that were ignored.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ignored {
    /// True if the file has pages after the first that were not read.
    pub pages: bool,
    /// True if the file has a nodata value that was not used.
    pub nodata: bool,
}

/// An image file with its parsed header.
struct ImageFile<'a> {
    bytes: &'a [u8],
    stored: OpenedImage<'a>,
    size: Size,
    is_grey: bool,
}

enum RecordContent<'a> {
    /// The record stores the file itself.
    Unchanged,
    /// The record stores this file instead.
    File(&'a [u8]),
    /// The record stores pixels, from `small` if `resized` is true and otherwise from `full`.
    Raw { resized: bool },
}

impl<'a> Recoder<'a> {
    pub(crate) fn new(target: Target<'a>, limits: Limits) -> Result<Self, Error> {
        let failed = |e: turbojpeg::Error| Error::Codec(e.to_string());
        Ok(Recoder {
            target,
            limits,
            decoder: Decoder::new(limits),
            encoder: JpegEncoder::new().map_err(failed)?,
            resizer: PlaneResizer::default(),
            full: Rgb::default(),
            small: Rgb::default(),
            planes: Planes::new(),
            png: Vec::new(),
            nodata: None,
            ignored: Ignored::default(),
        })
    }

    /// Replaces the file in `sample` by the content of its record and sets format, size and, if requested, entry
    /// points. Samples that are already RAW and files with raw images keep their values, apart from bands that are not
    /// selected. Grey files are recorded as RGB. An error says what is wrong with the file.
    pub(crate) fn recode(&mut self, sample: &mut Sample) -> Result<(), String> {
        let remade = || {
            sample.entry_points.clear();
            (self.nodata, self.ignored) = (None, Ignored::default());
            self.make_record(sample)?;
            if self.target.entry_points && sample.format == Format::Jpeg {
                sample.entry_points = entry_points(&sample.encoded).unwrap_or_default();
            }
            Ok(())
        };
        guarded_with(remade, |panic| format!("the decoder failed on this file ({panic}); save it again as PNG or JPEG"))
    }

    /// Does the work of `recode` except for entry points.
    fn make_record(&mut self, sample: &mut Sample) -> Result<(), String> {
        if sample.format == Format::Raw && sample.height > 0 {
            let &mut Sample { dtype, height, width, channels, .. } = sample;
            let bytes = std::mem::take(&mut sample.encoded);
            return self.store_raw(RawImage { dtype, height, width, channels, bytes, nodata: None }, 0, sample);
        }
        sample.dtype = Dtype::U8;
        if sample.encoded.starts_with(b"\x89HDF\r\n\x1a\n") {
            return Err(
                "an HDF5 file is only read from a folder and with an ending such as .h5; unpack or rename it".into()
            );
        }
        let of_bands = RawFormat::detect(&sample.encoded, self.target.bands.need_values());
        let chooses_page = self.target.bands.page != Page::default();
        self.ignored.pages = !chooses_page && raw::has_more_pages(&sample.encoded, &self.limits);
        if let Some(format) = of_bands.filter(|&format| self.target.to_8bit.is_none() || format == RawFormat::Npy) {
            let image = format.decode(&sample.encoded, self.target.bands, &self.limits)?;
            return self.store_raw(image, sample.encoded.len(), sample);
        }
        self.target.bands.refuse_except(&[])?;
        self.ignored.nodata = raw::has_nodata(&sample.encoded);
        let bytes = std::mem::take(&mut sample.encoded);
        let made = self.choose_content(&bytes, sample);
        let (made, file) = match made {
            Ok(RecordContent::Raw { resized }) => {
                let image = if resized { &mut self.small } else { &mut self.full };
                std::mem::swap(&mut sample.encoded, &mut image.pixels);
                return Ok(());
            }
            Ok(RecordContent::File(file)) => (Ok(()), Some(file)),
            Ok(RecordContent::Unchanged) => (Ok(()), None),
            Err(problem) => (Err(problem), None),
        };
        sample.encoded = bytes;
        if let Some(file) = file {
            sample.encoded.clear();
            sample.encoded.extend_from_slice(file);
        }
        made
    }

    /// Stores a raw image's pixels in the record. `length` is the file size, or 0 if the image shares its file with
    /// other images.
    fn store_raw(&mut self, image: RawImage, length: usize, sample: &mut Sample) -> Result<(), String> {
        let is_bytes = image.dtype == Dtype::U8 && [1, 3].contains(&image.channels);
        if self.target.to_8bit.is_some() && !is_bytes {
            return Err(format!(
                "--to-8bit converts TIFF and PNG files, but not this image with {} of {}; scale its values first, or leave out --to-8bit, \
                 which keeps them",
                crate::text::plural(image.channels.into(), "band"),
                image.dtype
            ));
        }
        if let Some(name) = self.target.for_photos().filter(|_| !is_bytes) {
            return Err(format!(
                "--{name} applies to grey and RGB images of bytes, but this one has {} of {}; training can resize it with a transform",
                crate::text::plural(image.channels.into(), "band"),
                image.dtype
            ));
        }
        let bytes = (image.bytes.len() as u64).saturating_mul(COPIES);
        let spec = ImageSpec::new(image.height, image.width, image.channels);
        let cost = Cost { spec, memory: bytes, scans: 1, seconds: 0.0 };
        self.limits.check("RAW image", length as u64, &cost).map_err(text)?;
        let image = image.prepared(self.target.bands)?;
        self.nodata = image.nodata;
        sample.set_image(image);
        Ok(())
    }

    /// Determines the content of the record, and sets its format and size.
    fn choose_content(&mut self, bytes: &[u8], sample: &mut Sample) -> Result<RecordContent<'_>, String> {
        if let Some(foreign) = ForeignFormat::detect(bytes) {
            return self.convert_foreign(foreign, bytes, sample);
        }
        let stored = self.decoder.open_file(bytes).map_err(text)?;
        let (spec, kept, format) = (stored.spec(), stored.file_spec(), stored.format());
        (sample.format, sample.channels) = (format, 3);
        let size = Size { height: spec.height as usize, width: spec.width as usize };
        let file = ImageFile { bytes, stored, size, is_grey: spec.channels == 1 };
        let smaller = self.target.size(size);
        set_size(sample, smaller.unwrap_or(size));
        self.check_raw(sample, bytes.len())?;
        let (is_cmyk, planes) = (file.stored.is_cmyk(), file.stored.planes());
        let keeps = match format {
            Format::Png => self.target.keeps_png(),
            _ => self.target.keeps_jpeg() && !is_cmyk,
        };
        match (smaller, planes) {
            (None, _) if keeps => {
                // Store the size without rotation, because the EXIF orientation stays in the file.
                (sample.height, sample.width) = (kept.height, kept.width);
                self.keep(file).map(|()| RecordContent::Unchanged)
            }
            (Some(size), Some(subsampling)) if self.target.keeps_planes() => {
                sample.format = Format::Jpeg;
                self.shrink_planes(file, subsampling, size).map(RecordContent::File)
            }
            _ => {
                turn_boxes(sample, file.stored.turn());
                let repaired = is_cmyk || format == Format::Png;
                sample.format = if self.target.raw { Format::Raw } else { Format::Jpeg };
                self.decode(file, smaller)?;
                self.store(smaller, repaired)
            }
        }
    }

    /// Converts a WebP, TIFF, BMP or GIF file. Without other options the result is a PNG with the same pixels, or a
    /// JPEG of the highest quality if the file has lossy compression.
    fn convert_foreign(
        &mut self,
        foreign: ForeignFormat,
        bytes: &[u8],
        sample: &mut Sample,
    ) -> Result<RecordContent<'_>, String> {
        turn_boxes(sample, foreign.decode(bytes, &self.limits, self.target.to_8bit, &mut self.full)?);
        sample.channels = 3;
        let smaller = self.target.size(self.full.size);
        set_size(sample, smaller.unwrap_or(self.full.size));
        self.check_raw(sample, bytes.len())?;
        let as_png = foreign.is_exact && smaller.is_none() && self.target.keeps_png();
        sample.format = match self.target.raw {
            true => Format::Raw,
            false if as_png => Format::Png,
            false => Format::Jpeg,
        };
        if !self.target.raw {
            check_training_limits(sample)?;
        }
        if as_png {
            let Rgb { size, is_grey, pixels } = &self.full;
            let grey: Vec<u8> = if *is_grey { pixels.iter().copied().step_by(3).collect() } else { Vec::new() };
            let pixels = if *is_grey { &grey } else { pixels };
            png(pixels, size.width as u32, size.height as u32, *is_grey, &mut self.png)?;
            return Ok(RecordContent::File(&self.png));
        }
        self.store(smaller, true)
    }

    /// Returns an error if RAW pixels would need too much memory on their way to a shard.
    fn check_raw(&self, sample: &Sample, length: usize) -> Result<(), String> {
        let spec = ImageSpec::new(sample.height, sample.width, 3);
        let cost = Cost { spec, memory: COPIES * spec.values() as u64, scans: 1, seconds: 0.0 };
        if self.target.raw { self.limits.check("RAW image", length as u64, &cost).map_err(text) } else { Ok(()) }
    }

    /// Checks a file that stays unchanged: all of its data must be readable, and it must be within the default limits
    /// of training.
    fn keep(&mut self, file: ImageFile<'_>) -> Result<(), String> {
        let usual = file.stored.check(&Limits::DEFAULT, file.bytes.len() as u64);
        usual.map_err(|fault| format!("{fault}; --resize makes it smaller"))?;
        let channels = if file.is_grey || file.stored.planes().is_some() { 1 } else { 3 };
        let read = self.decoder.reduced(file.stored, file.bytes, 8, channels, &mut self.full.pixels);
        read.map(drop).map_err(text)
    }

    /// Makes a smaller JPEG from a JPEG by resizing its planes.
    fn shrink_planes(&mut self, file: ImageFile<'_>, subsampling: Subsamp, size: Size) -> Result<&[u8], String> {
        let reduction = reduction(file.size, Some(size));
        let planes = self.planes.full(file.size.reduced(reduction), subsampling);
        self.decoder.planes(&file.stored, file.bytes, reduction, planes).map_err(text)?;
        self.encoder.planes(self.planes.resize(size), self.target.quality(false))
    }

    /// Stores the decoded image as pixels or as a JPEG, resized to `smaller` if given.
    fn store(&mut self, smaller: Option<Size>, repaired: bool) -> Result<RecordContent<'_>, String> {
        let image = match smaller {
            None => &self.full,
            Some(size) => {
                self.small.resize(&mut self.resizer, &self.full, size);
                &self.small
            }
        };
        if self.target.raw {
            return Ok(RecordContent::Raw { resized: smaller.is_some() });
        }
        let repaired = repaired && smaller.is_none();
        self.encoder.rgb(image, self.target.quality(repaired)).map(RecordContent::File)
    }

    /// Decodes a file to RGB. A JPEG is decoded at reduced size if `wanted` is much smaller.
    fn decode(&mut self, file: ImageFile<'_>, wanted: Option<Size>) -> Result<(), String> {
        let reduction = reduction(file.size, wanted);
        let pixels = &mut self.full.pixels;
        let (height, width) = self.decoder.reduced(file.stored, file.bytes, reduction, 3, pixels).map_err(text)?;
        pixels.truncate(3 * height * width);
        (self.full.size, self.full.is_grey) = (Size { height, width }, file.is_grey);
        Ok(())
    }

    /// Returns the RGB pixels of a finished sample as training will see them. An error says what is wrong with the file.
    pub(crate) fn pixels<'b>(&'b mut self, sample: &'b Sample) -> Result<&'b [u8], String> {
        if sample.format == Format::Raw {
            return Ok(&sample.encoded);
        }
        let stored = self.decoder.open_file(&sample.encoded).map_err(text)?;
        let size = Size { height: sample.height as usize, width: sample.width as usize };
        self.decode(ImageFile { bytes: &sample.encoded, stored, size, is_grey: false }, None)?;
        Ok(&self.full.pixels)
    }
}

/// Applies an image's rotation to its boxes.
fn turn_boxes(sample: &mut Sample, turn: ExifOrientation) {
    if !turn.is_none() {
        let turned: Vec<BoundingBox> = sample.boxes.boxes().iter().map(|stored| turn.turn_box(stored)).collect();
        sample.boxes.set(&turned);
    }
}

/// Returns an error if a new file exceeds the default limits of training.
fn check_training_limits(sample: &Sample) -> Result<(), String> {
    let spec = ImageSpec::new(sample.height, sample.width, 3);
    let cost = Cost { spec, memory: 3 * spec.pixels() as u64, scans: 1, seconds: 0.0 };
    Limits::DEFAULT.check("image", 0, &cost).map_err(|fault| format!("{fault}; --resize makes it smaller"))
}

/// Returns the largest of 1, 2, 4 and 8 by which a JPEG can be reduced so that each side still has at least
/// [`HEADROOM`] times the wanted pixels.
fn reduction(stored: Size, wanted: Option<Size>) -> u32 {
    let Some(wanted) = wanted else { return 1 };
    let enough = |reduction: &u32| {
        let left = stored.reduced(*reduction);
        left.height >= HEADROOM * wanted.height && left.width >= HEADROOM * wanted.width
    };
    [8, 4, 2].into_iter().find(enough).unwrap_or(1)
}

/// Sets the size of a sample. The casts cannot overflow, because `loaders` limits the number of pixels.
fn set_size(sample: &mut Sample, size: Size) {
    (sample.height, sample.width) = (size.height as u32, size.width as u32);
}

fn text(fault: Fault) -> String {
    fault.to_string()
}

/// Converts an error of libjpeg-turbo to a message.
fn message(error: turbojpeg::Error) -> String {
    match error {
        turbojpeg::Error::TurboJpegError(text) => format!("libjpeg-turbo: {text}"),
        other => other.to_string(),
    }
}

pub(super) struct JpegEncoder {
    encoder: Compressor,
    file: Vec<u8>,
}

impl JpegEncoder {
    pub fn new() -> turbojpeg::Result<Self> {
        Ok(JpegEncoder { encoder: Compressor::new()?, file: Vec::new() })
    }

    /// Encodes an RGB image. The JPEG is grey if the image is grey.
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

    /// Encodes an image from its planes and keeps their subsampling.
    pub fn planes(&mut self, image: YuvImage<&[u8]>, quality: u8) -> Result<&[u8], String> {
        let size = Size { height: image.height, width: image.width };
        self.set_up(size, quality, image.subsamp).map_err(message)?;
        let length = self.encoder.compress_yuv_to_slice(image, &mut self.file).map_err(message)?;
        Ok(&self.file[..length])
    }

    /// Configures the encoder and makes the buffer large enough for any JPEG of this size.
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

/// Encodes grey or RGB pixels as a PNG and stores it in `file`, replacing its content.
pub(crate) fn png(pixels: &[u8], width: u32, height: u32, is_grey: bool, file: &mut Vec<u8>) -> Result<(), String> {
    file.clear();
    let colour = if is_grey { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let written = PngEncoder::new(file).write_image(pixels, width, height, colour);
    written.map_err(|e| format!("cannot be encoded as PNG: {e}"))
}

const DEFAULT_QUALITY: u8 = 90;
/// JPEG quality for files that are encoded only because they are not RGB JPEGs. TensorFlow's scripts use the same
/// value.
const REPAIR_QUALITY: u8 = 100;

/// The stored format that the options request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    resize: Option<u32>,
    quality: Option<u8>,
    /// True if pixels are stored instead of files.
    pub(super) raw: bool,
    /// How to convert images with more than 8 bits or more than three bands. `None` rejects them.
    pub(super) to_8bit: Option<To8Bit>,
    /// How to read raw images.
    pub(super) bands: &'a RawOptions,
    /// True if JPEGs get entry points.
    pub(super) entry_points: bool,
    png_as_jpeg: bool,
}

impl<'a> Target<'a> {
    /// Creates a target from the options. If `png_as_jpeg` is true, every PNG file becomes a JPEG.
    pub(crate) fn new(options: &'a ConvertOptions, png_as_jpeg: bool) -> Self {
        let &ConvertOptions { resize, quality, raw, to_8bit, entry_points, ref bands, .. } = options;
        Target { resize, quality, raw, to_8bit, bands, entry_points, png_as_jpeg }
    }

    /// Returns the name of the first option that is set although raw images do not support it. Returns `None` if there
    /// is no such option.
    fn for_photos(&self) -> Option<&'static str> {
        let quality = self.quality.map(|_| "quality");
        self.resize.map(|_| "resize").or(quality)
    }

    /// Returns true if an RGB JPEG that is not resized is stored unchanged.
    pub(super) fn keeps_jpeg(&self) -> bool {
        !self.raw && self.quality.is_none()
    }

    /// Returns true if a PNG that is not resized is stored unchanged.
    pub(super) fn keeps_png(&self) -> bool {
        self.keeps_jpeg() && !self.png_as_jpeg
    }

    /// Returns true if a JPEG may be resized in its planes. The result then has chroma at half resolution.
    pub(super) fn keeps_planes(&self) -> bool {
        !self.raw && self.quality != Some(100)
    }

    /// Returns the quality of a JPEG. `repaired` means that it replaces a file of the same size that cannot be stored
    /// unchanged.
    pub(super) fn quality(&self, repaired: bool) -> u8 {
        self.quality.unwrap_or(if repaired { REPAIR_QUALITY } else { DEFAULT_QUALITY })
    }

    /// Returns the size after scaling, or `None` if an image of size `stored` is not scaled. The shorter side becomes
    /// the requested length and the longer side is scaled in proportion and rounded down (torchvision's rule). Images
    /// are never enlarged.
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
