//! From an example's bytes to pixels: RAW, PNG and JPEG to rows of interleaved u8 channels, of JPEG only the part that is
//! needed. Which part that is, scaling and floats are not here; they are transforms.
//!
//! Where RGB is expected, grey is repeated three times; colour is never made grey. Alpha is dropped, 16-bit channels are cut
//! to 8, EXIF orientation is not applied (as in torchvision's and TensorFlow's decoders).

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError};

use crate::decode::jpeg::{Header, Jpeg};
use crate::error::Fault;
use crate::format::example::{Example, Format};
use crate::spec::{ImageSpec, Images};
use crate::transform::{Need, Part};

/// Pixels of the largest image that is decoded: a hostile header must not cost the memory that it names.
pub const MOST_PIXELS: usize = 100_000_000;

/// The shape of an example's image: of RAW as the record says, else as the file's header says.
pub fn spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    Ok(Decoder::default().open(example)?.spec())
}

/// The image as H*W*C bytes; another shape than `expected` is an error.
///
/// RAW bytes are lent as they lie in the record. PNG and JPEG are decoded into `scratch`, which keeps its memory.
pub fn decode<'a>(example: &Example<'a>, expected: ImageSpec, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    let mut decoder = Decoder::default();
    let stored = decoder.open(example)?;
    stored.accept(Images::Fixed(expected))?;
    let part = decoder.part(stored, example, Need::whole(expected), expected.channels, scratch)?;
    Ok(&part.bytes[..expected.values()])
}

/// What decoding keeps from image to image; one a thread.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Made for the first JPEG.
    jpeg: Option<Jpeg>,
}

/// An example whose header has been read.
pub(crate) enum Stored<'a> {
    Raw(ImageSpec),
    Png(Box<PngDecoder<Cursor<&'a [u8]>>>),
    Jpeg(Header),
}

impl Stored<'_> {
    /// The shape of the image, alpha not counted.
    pub fn spec(&self) -> ImageSpec {
        match self {
            Self::Raw(spec) => *spec,
            Self::Png(decoder) => {
                let (width, height) = decoder.dimensions();
                ImageSpec::new(height, width, if decoder.color_type().has_color() { 3 } else { 1 })
            }
            Self::Jpeg(header) => header.spec(),
        }
    }

    /// The shape in which the image is taken where `images` are expected: grey as RGB if need be.
    pub fn accept(&self, images: Images) -> Result<ImageSpec, Fault> {
        let got = self.spec();
        let repeated =
            got.channels == 1 && images.channels() == 3 && !matches!((self, images), (Self::Raw(_), Images::Fixed(_)));
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
    /// Reads an example's header.
    pub fn open<'a>(&mut self, example: &Example<'a>) -> Result<Stored<'a>, Fault> {
        let stored = match file_format(example)? {
            Format::Raw => Stored::Raw(raw_spec(example)?),
            Format::Png => Stored::Png(Box::new(PngDecoder::new(Cursor::new(example.encoded)).map_err(failed)?)),
            Format::Jpeg => Stored::Jpeg(self.jpeg()?.header(example.encoded)?),
        };
        let spec = stored.spec();
        if !matches!(stored, Stored::Raw(_)) && !(1..=MOST_PIXELS).contains(&spec.pixels()) {
            return Err(Fault::TooLarge { got: spec });
        }
        Ok(stored)
    }

    /// Decodes what is needed of an image, to `channels` as [`Stored::accept`] gave them.
    pub fn part<'a>(
        &mut self,
        stored: Stored<'a>,
        example: &Example<'a>,
        need: Need,
        channels: u32,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Part<'a>, Fault> {
        let whole = |spec: ImageSpec, bytes| Part { bytes, columns: spec.width as usize, origin: (0, 0), reduction: 1 };
        match stored {
            Stored::Raw(spec) if spec.channels == channels => Ok(whole(spec, example.encoded)),
            Stored::Raw(spec) => {
                scratch.clear();
                scratch.extend(example.encoded.iter().flat_map(|&grey| [grey; 3]));
                Ok(whole(spec, scratch))
            }
            Stored::Png(decoder) => {
                let (width, height) = decoder.dimensions();
                let spec = ImageSpec::new(height, width, channels);
                decode_png(*decoder, spec, scratch)?;
                Ok(whole(spec, scratch))
            }
            Stored::Jpeg(header) => self.jpeg()?.decode(example.encoded, header, need, channels, scratch),
        }
    }

    fn jpeg(&mut self) -> Result<&mut Jpeg, Fault> {
        match &mut self.jpeg {
            Some(jpeg) => Ok(jpeg),
            none => Ok(none.insert(Jpeg::new()?)),
        }
    }
}

/// RAW is taken at its word. Of the others the first bytes decide: data sets are known whose
/// `.JPEG` files are PNG inside.
fn file_format(example: &Example<'_>) -> Result<Format, Fault> {
    if example.format == Format::Raw {
        return Ok(Format::Raw);
    }
    if example.encoded.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(Format::Png)
    } else if example.encoded.starts_with(&[0xff, 0xd8]) {
        Ok(Format::Jpeg)
    } else {
        Err(Fault::Decode {
            format: example.format.name(),
            problem: "it starts like neither a PNG nor a JPEG file".into(),
        })
    }
}

/// The sizes in the record, which the bytes must bear out; an image has at least one byte.
fn raw_spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    let spec = ImageSpec::new(example.height, example.width, example.channels);
    let got = example.encoded.len();
    if got == 0 || got != spec.values() {
        return Err(Fault::RawLength { spec, got });
    }
    Ok(spec)
}

fn failed(error: ImageError) -> Fault {
    Fault::Decode { format: "PNG", problem: error.to_string() }
}

/// The whole image as `spec.channels` channels.
fn decode_png(decoder: PngDecoder<Cursor<&[u8]>>, spec: ImageSpec, scratch: &mut Vec<u8>) -> Result<(), Fault> {
    let direct = match decoder.color_type() {
        ColorType::L8 => spec.channels == 1,
        ColorType::Rgb8 => true,
        _ => false,
    };
    scratch.clear();
    if direct {
        scratch.resize(spec.values(), 0);
        decoder.read_image(scratch).map_err(failed)?;
    } else {
        let image = DynamicImage::from_decoder(decoder).map_err(failed)?;
        match spec.channels {
            3 => scratch.extend_from_slice(&image.into_rgb8()),
            _ => scratch.extend_from_slice(&image.into_luma8()),
        }
    }
    Ok(())
}
