//! The image decoder of a thread, for RAW, PNG and JPEG. Other formats are only recognised for error messages.

use std::fmt;

use turbojpeg::Subsamp;

use crate::decode::jpeg::{Header, Jpeg};
use crate::decode::png::Png;
use crate::decode::region::{Decoded, Exif, ExifOrientation, Need, Part};
use crate::fault::Fault;
use crate::format::example::{Example, Format};
use crate::guarded::guarded_with;
use crate::memory::Limits;
use crate::spec::{Dtype, ImageSpec, Images};

/// Returns the shape of an example's image: from the record if it is RAW, otherwise from the file's header, with the
/// EXIF orientation applied.
///
/// # Errors
///
/// Returns an error if the header cannot be read, if the file is truncated, or if decoding it would exceed
/// [`Limits::DEFAULT`].
pub fn spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    spec_as(example, Exif::Applied)
}

/// Works like [`spec`], with or without the EXIF orientation applied.
pub fn spec_as(example: &Example<'_>, exif: Exif) -> Result<ImageSpec, Fault> {
    let mut decoder = Decoder { exif, ..Decoder::default() };
    Ok(decoder.open(example)?.spec())
}

/// Decodes the image to H*W*C bytes. Returns an error if its shape is not `expected`.
///
/// RAW bytes are borrowed from the record. PNG and JPEG are decoded into `scratch`, which can be reused.
pub fn decode<'a>(example: &Example<'a>, expected: ImageSpec, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    Decoder::default().decode_whole(example, expected, scratch)
}

/// Decodes a sequence of images and reuses its memory. Each thread has its own. Conversion, verification and training
/// use the same decoder, so they accept the same files.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: Limits,
    /// Created for the first JPEG, and again after each JPEG that could not be decoded, because libjpeg-turbo would
    /// keep state of the failed file.
    jpeg: Option<Jpeg>,
    /// Buffer for the pixels that [`Decoder::check`] decodes.
    check_buffer: Vec<u8>,
    exif: Exif,
    /// Pixels before the EXIF orientation is applied.
    file_pixels: Vec<u8>,
}

/// An example with a parsed header.
pub struct OpenedImage<'a> {
    kind: Kind<'a>,
    turn: ExifOrientation,
}

enum Kind<'a> {
    Raw(ImageSpec, Dtype),
    Png(Png<'a>),
    Jpeg(Header),
}

/// What to decode of a file.
#[derive(Clone, Copy)]
enum Request<'a> {
    /// A part, with the entry points from the record.
    Part(Need, &'a [u8]),
    /// The whole image at 1 / this number of its size.
    Reduced(u32),
}

impl OpenedImage<'_> {
    /// Returns the shape of the image without alpha, after any EXIF orientation.
    pub fn spec(&self) -> ImageSpec {
        self.turn.spec(self.file_spec())
    }

    /// Returns the shape of the image in the file, before any EXIF orientation.
    pub fn file_spec(&self) -> ImageSpec {
        match &self.kind {
            Kind::Raw(spec, _) => *spec,
            Kind::Png(png) => png.spec(),
            Kind::Jpeg(header) => header.spec(),
        }
    }

    /// Returns the orientation that turns the image in the file into the image to show.
    pub fn turn(&self) -> ExifOrientation {
        self.turn
    }

    pub fn format(&self) -> Format {
        match &self.kind {
            Kind::Raw(..) => Format::Raw,
            Kind::Png(_) => Format::Png,
            Kind::Jpeg(_) => Format::Jpeg,
        }
    }

    /// Returns true if it is a JPEG with four inks (CMYK or YCCK).
    pub fn is_cmyk(&self) -> bool {
        matches!(&self.kind, Kind::Jpeg(header) if header.is_cmyk())
    }

    /// Returns the chroma subsampling if [`Decoder::planes`] can decode this file: a JPEG with luma and chroma that is
    /// not rotated.
    pub fn planes(&self) -> Option<Subsamp> {
        match &self.kind {
            Kind::Jpeg(header) if self.turn.is_none() => header.planes(),
            _ => None,
        }
    }

    /// Checks the file's cost against other limits. `length` is the size of the file in bytes.
    ///
    /// # Errors
    ///
    /// Returns the first limit that is exceeded.
    pub fn check(&self, limits: &Limits, length: u64) -> Result<(), Fault> {
        match &self.kind {
            Kind::Raw(..) => Ok(()),
            Kind::Png(png) => limits.check("PNG", length, &png.cost()),
            Kind::Jpeg(header) => limits.check("JPEG", length, &header.cost),
        }
    }

    /// Returns the shape to decode to if `images` are expected, or an error if this image is not one of them. An 8-bit
    /// grey image becomes RGB if RGB is expected.
    pub(crate) fn accept(&self, images: Images) -> Result<ImageSpec, Fault> {
        let got = self.spec();
        let has_bytes = !matches!(self.kind, Kind::Raw(_, dtype) if dtype != Dtype::U8);
        let repeated = has_bytes && got.channels == 1 && images.channels() == 3;
        let taken = ImageSpec { channels: if repeated { 3 } else { got.channels }, ..got };
        match images {
            Images::Fixed(expected) if taken != expected => Err(Fault::ImageSize { expected, got: taken }),
            Images::Varied { channels: expected } if taken.channels != expected => {
                Err(Fault::Channels { expected, got: taken })
            }
            _ => Ok(taken),
        }
    }
}

impl Decoder {
    /// Creates a decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Sets whether the EXIF orientation is applied to the following images. By default it is applied.
    pub(crate) fn exif(&mut self, exif: Exif) {
        self.exif = exif;
    }

    /// Reads an example's header.
    ///
    /// # Errors
    ///
    /// Returns an error if the header cannot be read, if the file is truncated, or if it exceeds the limits.
    pub fn open<'a>(&mut self, example: &Example<'a>) -> Result<OpenedImage<'a>, Fault> {
        match example.format {
            // The pixels are already in the record, so no limit applies.
            Format::Raw => {
                let kind = Kind::Raw(raw_spec(example)?, example.dtype);
                Ok(OpenedImage { kind, turn: ExifOrientation::default() })
            }
            _ => self.open_with(example.encoded, example.entry_points),
        }
    }

    /// Reads the header of a PNG or JPEG file. The format is recognised by the first bytes, because some data sets have
    /// PNG files named `.JPEG`. Returns the same errors as [`Decoder::open`].
    pub fn open_file<'a>(&mut self, file: &'a [u8]) -> Result<OpenedImage<'a>, Fault> {
        self.open_with(file, &[])
    }

    /// Works like [`Decoder::open_file`], with the entry points from the record.
    fn open_with<'a>(&mut self, file: &'a [u8], entry_points: &[u8]) -> Result<OpenedImage<'a>, Fault> {
        match Format::detect(file) {
            Some(Format::Png) => {
                let png = safely("PNG", || Png::open(file, self.limits))?;
                let turn = self.turn(png.turn);
                Ok(OpenedImage { kind: Kind::Png(png), turn })
            }
            Some(Format::Jpeg) => {
                let header = self.with_jpeg(|jpeg| jpeg.header(file, entry_points))?;
                Ok(OpenedImage { kind: Kind::Jpeg(header), turn: self.turn(header.turn) })
            }
            Some(Format::Raw) | None => Err(Fault::Unknown(advice(file))),
        }
    }

    /// Checks that the image of the most recently opened example can be decoded, by reading all of its data. A JPEG is
    /// decoded at 1/8 of its size, which still reads everything.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Decoder::open`], and errors for truncated or wrong data.
    pub fn check(&mut self, stored: OpenedImage<'_>, example: &Example<'_>) -> Result<(), Fault> {
        if stored.format() != Format::Raw {
            let mut pixels = std::mem::take(&mut self.check_buffer);
            // Even decoding only luma reads all data.
            let channels = if stored.planes().is_some() { 1 } else { stored.spec().channels };
            let decoded = self.reduced(stored, example.encoded, 8, channels, &mut pixels);
            self.check_buffer = pixels;
            decoded?;
        }
        Ok(())
    }

    /// Decodes the image to H*W*C bytes. Returns an error if its shape is not `expected`. RAW bytes are borrowed from the
    /// record, and other formats are decoded into `scratch`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Decoder::check`], and an error if the values are not bytes.
    pub fn decode_whole<'a>(
        &mut self,
        example: &Example<'a>,
        expected: ImageSpec,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault> {
        let stored = self.open(example)?;
        if example.dtype != Dtype::U8 {
            return Err(Fault::Dtype { expected: Dtype::U8, got: example.dtype });
        }
        stored.accept(Images::Fixed(expected))?;
        let decoded = self.decode(stored, example, Need::whole(expected), expected.channels, scratch)?;
        Ok(&decoded.bytes[..expected.values()])
    }

    /// Decodes the part `need` of an image. `channels` is the channel count that [`OpenedImage::accept`] returned.
    pub(crate) fn decode<'a>(
        &mut self,
        stored: OpenedImage<'a>,
        example: &Example<'a>,
        need: Need,
        channels: u32,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Decoded<'a>, Fault> {
        let (turn, shown) = (stored.turn, ImageSpec { channels, ..stored.spec() });
        if let Kind::Raw(spec, dtype) = stored.kind {
            let part = whole(spec);
            if spec.channels == channels {
                return Ok(Decoded { dtype, ..part.with_bytes(example.encoded) });
            }
            scratch.clear();
            scratch.extend(example.encoded.iter().flat_map(|&grey| [grey; 3]));
            return Ok(part.with_bytes(scratch));
        }
        if turn.is_none() {
            let request = Request::Part(need, example.entry_points);
            return Ok(self.decode_file(stored.kind, example.encoded, request, channels, scratch)?.with_bytes(scratch));
        }
        let mut pixels = std::mem::take(&mut self.file_pixels);
        let request = Request::Part(turn.need(need, shown), example.entry_points);
        let part = self.decode_file(stored.kind, example.encoded, request, channels, &mut pixels)?;
        let part = turn.apply(part, &pixels, shown, scratch);
        self.file_pixels = pixels;
        Ok(part.with_bytes(scratch))
    }

    /// Decodes a PNG or JPEG file, before any EXIF orientation.
    fn decode_file(
        &mut self,
        kind: Kind<'_>,
        file: &[u8],
        request: Request<'_>,
        channels: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<Part, Fault> {
        match kind {
            Kind::Raw(spec, _) => Ok(whole(spec)),
            Kind::Png(png) => {
                let spec = png.spec();
                safely("PNG", || png.decode(channels, pixels))?;
                Ok(whole(spec))
            }
            Kind::Jpeg(header) => self.with_jpeg(|jpeg| match request {
                Request::Part(need, entry_points) => jpeg.decode(file, entry_points, header, need, channels, pixels),
                Request::Reduced(reduction) => jpeg.whole(file, header, channels, reduction, pixels),
            }),
        }
    }

    /// Decodes a whole file to interleaved bytes of `channels` (3, or 1 if it is grey). A JPEG that is not lossless is
    /// decoded at 1 / `reduction` of its size (1, 2, 4 or 8). Returns height and width.
    ///
    /// # Errors
    ///
    /// Returns an error for truncated or wrong data.
    pub fn reduced(
        &mut self,
        stored: OpenedImage<'_>,
        file: &[u8],
        reduction: u32,
        channels: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<(usize, usize), Fault> {
        let (turn, request) = (stored.turn, Request::Reduced(reduction));
        if turn.is_none() {
            let Part { rows, columns, .. } = self.decode_file(stored.kind, file, request, channels, pixels)?;
            return Ok((rows, columns));
        }
        let mut file_pixels = std::mem::take(&mut self.file_pixels);
        let part = self.decode_file(stored.kind, file, request, channels, &mut file_pixels)?;
        let shown = turn.spec(ImageSpec::new(part.rows as u32, part.columns as u32, channels));
        let Part { rows, columns, .. } = turn.apply(part, &file_pixels, shown, pixels);
        self.file_pixels = file_pixels;
        Ok((rows, columns))
    }

    /// Returns `turn`, the orientation in a file's EXIF data, or the identity if this decoder ignores EXIF.
    fn turn(&self, turn: ExifOrientation) -> ExifOrientation {
        match self.exif {
            Exif::Applied => turn,
            Exif::Ignored => ExifOrientation::default(),
        }
    }

    /// Decodes the planes of a JPEG for which [`OpenedImage::planes`] returns a subsampling, at 1 / `reduction` of its size.
    /// The planes are stored consecutively without padding.
    ///
    /// # Errors
    ///
    /// Returns an error for truncated or wrong data, or if the image has no such planes.
    pub fn planes(
        &mut self,
        stored: &OpenedImage<'_>,
        file: &[u8],
        reduction: u32,
        planes: &mut [u8],
    ) -> Result<(), Fault> {
        match &stored.kind {
            Kind::Jpeg(header) if stored.turn.is_none() => {
                self.with_jpeg(|jpeg| jpeg.planes(file, *header, reduction, planes))
            }
            _ => Err(Fault::Decode {
                format: stored.format().name(),
                problem: "it is not stored as luma and chroma planes".into(),
            }),
        }
    }

    /// Runs `f` with the decompressor, which is discarded if `f` fails.
    fn with_jpeg<T>(&mut self, f: impl FnOnce(&mut Jpeg) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut jpeg = match self.jpeg.take() {
            Some(jpeg) => jpeg,
            None => Jpeg::new(self.limits)?,
        };
        let done = safely("JPEG", || f(&mut jpeg))?;
        self.jpeg = Some(jpeg);
        Ok(done)
    }
}

/// Runs a decoder and converts a panic to a [`Fault`].
fn safely<T>(format: &'static str, decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    guarded_with(decode, |panic| Fault::Decode { format, problem: format!("the decoder failed ({panic})") })
}

fn whole(spec: ImageSpec) -> Part {
    Part { rows: spec.height as usize, columns: spec.width as usize, origin: (0, 0), reduction: 1 }
}

/// Returns the shape in the record. It must match the number of bytes, and the image must have at least one byte.
fn raw_spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    let spec = ImageSpec::new(example.height, example.width, example.channels);
    let (dtype, got) = (example.dtype, example.encoded.len());
    if got == 0 || got != spec.values().saturating_mul(dtype.bytes()) {
        return Err(Fault::RawLength { spec, dtype, got });
    }
    Ok(spec)
}

/// A known file format that the decoder does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherFormat {
    WebP,
    Gif,
    Bmp,
    Tiff,
    Avif,
    Heic,
    JpegXl,
    Jpeg2000,
    Pdf,
    Zip,
    Xml,
}

impl fmt::Display for OtherFormat {
    /// Writes the name with an article, for example "a GIF file".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WebP => "a WebP file",
            Self::Gif => "a GIF file",
            Self::Bmp => "a BMP file",
            Self::Tiff => "a TIFF file",
            Self::Avif => "an AVIF file",
            Self::Heic => "a HEIC file",
            Self::JpegXl => "a JPEG XL file",
            Self::Jpeg2000 => "a JPEG 2000 file",
            Self::Pdf => "a PDF file",
            Self::Zip => "a ZIP archive",
            Self::Xml => "an SVG or XML file",
        })
    }
}

/// Returns the file's format if it is known but not supported.
pub fn other_format(file: &[u8]) -> Option<OtherFormat> {
    use OtherFormat::{Avif, Bmp, Gif, Heic, Jpeg2000, JpegXl, Pdf, Tiff, WebP, Xml, Zip};
    let at = |offset: usize, bytes: &[u8]| file.get(offset..).is_some_and(|rest| rest.starts_with(bytes));
    // Header sizes for Windows and OS/2.
    const BMP_HEADERS: [u8; 8] = [12, 16, 40, 52, 56, 64, 108, 124];
    let known: [(bool, OtherFormat); 11] = [
        (at(0, b"RIFF") && at(8, b"WEBP"), WebP),
        (at(0, b"GIF8"), Gif),
        (at(0, b"BM") && BMP_HEADERS.iter().any(|&length| at(14, &[length, 0, 0, 0])), Bmp),
        (at(0, b"II*\0") || at(0, b"MM\0*") || at(0, b"II+\0\x08\0") || at(0, b"MM\0+\0\x08"), Tiff),
        (at(4, b"ftypavif"), Avif),
        (at(4, b"ftyphei") || at(4, b"ftypmif1"), Heic),
        (at(0, &[0xff, 0x0a]) || at(4, b"JXL "), JpegXl),
        (at(4, b"jP  "), Jpeg2000),
        (at(0, b"%PDF"), Pdf),
        (at(0, b"PK\x03\x04"), Zip),
        (at(0, b"<svg") || at(0, b"<?xml"), Xml),
    ];
    known.into_iter().find(|(is, _)| *is).map(|(_, name)| name)
}

/// Returns advice for a file that is neither a PNG nor a JPEG.
pub(super) fn advice(file: &[u8]) -> String {
    match other_format(file) {
        Some(format @ (OtherFormat::WebP | OtherFormat::Gif | OtherFormat::Bmp | OtherFormat::Tiff)) => {
            format!("it is {format}; `trireme data convert` accepts it, but for `predict` save it as PNG or JPEG")
        }
        Some(OtherFormat::Zip) => "it is a ZIP archive; unpack it first (unzip FILE -d DIR)".into(),
        Some(format) => format!("it is {format}; save it as PNG or JPEG"),
        None => match &file[..file.len().min(16)] {
            [] => "the file is empty (0 bytes)".into(),
            head => format!("it starts with \"{}\"", head.escape_ascii()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn other_formats_are_recognised_by_their_first_bytes() {
        assert_eq!(other_format(b"RIFF\x10\0\0\0WEBPVP8L"), Some(OtherFormat::WebP));
        assert_eq!(other_format(b"RIFF\x10\0\0\0AVI LIST"), None);
        assert_eq!(other_format(b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"), Some(OtherFormat::Bmp));
        assert_eq!(other_format(b"BM\x36\0\0\0\x07\0\0\0\x1a\0\0\0\x0c\0\0\0"), Some(OtherFormat::Bmp));
        assert_eq!(other_format(b"II+\0\x08\0\0\0"), Some(OtherFormat::Tiff));
        assert_eq!(other_format(b"MM\0*\0\0\0\x08"), Some(OtherFormat::Tiff));
        assert_eq!(other_format(b"\0\0\0\x18ftypheic"), Some(OtherFormat::Heic));
        assert_mentions(&advice(b"GIF89a.."), &["a GIF file", "trireme data convert"]);
        assert_mentions(&advice(b"%PDF-1.4"), &["a PDF file", "PNG or JPEG"]);
        assert_mentions(&advice(b"PK\x03\x04"), &["a ZIP archive", "unzip"]);
        assert_mentions(&advice(b""), &["empty", "0 bytes"]);
        assert_mentions(&advice(b"hello"), &["\"hello\""]);
    }
}
