//! The decoder of a thread: RAW, PNG or JPEG.

use crate::decode::jpeg::{Header, Jpeg};
use crate::decode::limit::check_pixels;
use crate::decode::png::Png;
use crate::decode::region::{Decoded, Need};
use crate::fault::Fault;
use crate::format::example::{Example, Format};
use crate::spec::{ImageSpec, Images};

/// The shape of an example's image: by the record if it is RAW, else by the file's header.
///
/// # Errors
/// If the header cannot be read, or the file has more pixels than [`MAX_PIXELS`](crate::decode::MAX_PIXELS).
pub fn spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    Ok(Decoder::default().open(example)?.spec())
}

/// The image as H*W*C bytes; another shape than `expected` is an error.
///
/// RAW bytes are borrowed from the record. PNG and JPEG are decoded into `scratch`, which keeps its memory.
pub fn decode<'a>(example: &Example<'a>, expected: ImageSpec, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    let mut decoder = Decoder::default();
    let stored = decoder.open(example)?;
    stored.accept(Images::Fixed(expected))?;
    let decoded = decoder.decode(stored, example, Need::whole(expected), expected.channels, scratch)?;
    Ok(&decoded.bytes[..expected.values()])
}

/// Decodes images one after another and keeps its memory; one a thread.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Created for the first JPEG.
    jpeg: Option<Jpeg>,
}

/// An example whose header has been read.
pub(crate) enum Stored<'a> {
    Raw(ImageSpec),
    Png(Png<'a>),
    Jpeg(Header),
}

impl Stored<'_> {
    /// The shape of the image, without alpha.
    pub fn spec(&self) -> ImageSpec {
        match self {
            Self::Raw(spec) => *spec,
            Self::Png(png) => png.spec(),
            Self::Jpeg(header) => header.spec(),
        }
    }

    /// The shape to decode the image to if `images` are expected: grey becomes RGB if RGB is expected.
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
            // its pixels are in the record already, so no limit applies
            Format::Raw => return Ok(Stored::Raw(raw_spec(example)?)),
            Format::Png => Stored::Png(Png::open(example.encoded)?),
            Format::Jpeg => Stored::Jpeg(self.jpeg()?.header(example.encoded)?),
        };
        check_pixels(stored.spec())?;
        Ok(stored)
    }

    /// Decodes what is needed of an image, to the `channels` that [`Stored::accept`] returned.
    pub fn decode<'a>(
        &mut self,
        stored: Stored<'a>,
        example: &Example<'a>,
        need: Need,
        channels: u32,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Decoded<'a>, Fault> {
        let whole =
            |spec: ImageSpec, bytes| Decoded { bytes, columns: spec.width as usize, origin: (0, 0), reduction: 1 };
        match stored {
            Stored::Raw(spec) if spec.channels == channels => Ok(whole(spec, example.encoded)),
            Stored::Raw(spec) => {
                scratch.clear();
                scratch.extend(example.encoded.iter().flat_map(|&grey| [grey; 3]));
                Ok(whole(spec, scratch))
            }
            Stored::Png(png) => {
                let spec = png.spec();
                png.decode(channels, scratch)?;
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

/// The format of the bytes: RAW if the record says so, else by the first bytes, since some data sets have PNG files named `.JPEG`.
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

/// The sizes in the record, which must agree with the number of bytes; an image has at least one byte.
fn raw_spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    let spec = ImageSpec::new(example.height, example.width, example.channels);
    let got = example.encoded.len();
    if got == 0 || got != spec.values() {
        return Err(Fault::RawLength { spec, got });
    }
    Ok(spec)
}
