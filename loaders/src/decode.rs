//! From an example's bytes to pixels: RAW, PNG and JPEG to rows of interleaved u8 channels. Cropping,
//! scaling and floats are not here; they are transforms.

use std::io::Cursor;

use image::codecs::{jpeg::JpegDecoder, png::PngDecoder};
use image::{ColorType, DynamicImage, ImageDecoder, ImageError};

use crate::error::Fault;
use crate::example::{Example, Format};
use crate::spec::ImageSpec;

/// The shape of an example's image: of RAW as the record says, else as the file's header says.
pub fn spec(example: &Example<'_>) -> Result<ImageSpec, Fault> {
    match file_format(example)? {
        Format::Raw => raw_spec(example),
        Format::Png => header(&png(example.encoded)?),
        Format::Jpeg => header(&jpeg(example.encoded)?),
    }
}

/// The image as H*W*C bytes; another shape than `expected` is an error.
///
/// RAW bytes are lent as they lie in the record. PNG and JPEG are decoded into `scratch`, which keeps
/// its memory from image to image (the decoders themselves allocate). Where RGB is expected, grey
/// is repeated three times; alpha is dropped; 16-bit channels are cut to 8.
pub fn decode<'a>(example: &Example<'a>, expected: ImageSpec, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    match file_format(example)? {
        Format::Raw => {
            check(expected, raw_spec(example)?)?;
            Ok(example.encoded)
        }
        Format::Png => decode_file(png(example.encoded)?, "PNG", expected, scratch),
        Format::Jpeg => decode_file(jpeg(example.encoded)?, "JPEG", expected, scratch),
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

fn check(expected: ImageSpec, got: ImageSpec) -> Result<(), Fault> {
    if got == expected { Ok(()) } else { Err(Fault::ImageSize { expected, got }) }
}

fn failed(format: &'static str) -> impl Fn(ImageError) -> Fault {
    move |e| Fault::Decode { format, problem: e.to_string() }
}

fn png(bytes: &[u8]) -> Result<PngDecoder<Cursor<&[u8]>>, Fault> {
    PngDecoder::new(Cursor::new(bytes)).map_err(failed("PNG"))
}

fn jpeg(bytes: &[u8]) -> Result<JpegDecoder<Cursor<&[u8]>>, Fault> {
    JpegDecoder::new(Cursor::new(bytes)).map_err(failed("JPEG"))
}

/// The shape by the header, alpha not counted.
fn header(decoder: &impl ImageDecoder) -> Result<ImageSpec, Fault> {
    let (width, height) = decoder.dimensions();
    let channels = if decoder.color_type().has_color() { 3 } else { 1 };
    Ok(ImageSpec::new(height, width, channels))
}

fn decode_file<'a>(
    decoder: impl ImageDecoder,
    format: &'static str,
    expected: ImageSpec,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], Fault> {
    // Sizes are compared before a pixel is decoded: a hostile header costs no memory.
    let got = header(&decoder)?;
    let grey_as_rgb = got.channels == 1 && expected.channels == 3;
    check(expected, ImageSpec { channels: if grey_as_rgb { 3 } else { got.channels }, ..got })?;
    let direct = match decoder.color_type() {
        ColorType::L8 => !grey_as_rgb,
        ColorType::Rgb8 => true,
        _ => false,
    };
    scratch.clear();
    if direct {
        scratch.resize(expected.values(), 0);
        decoder.read_image(scratch).map_err(failed(format))?;
    } else {
        let image = DynamicImage::from_decoder(decoder).map_err(failed(format))?;
        if expected.channels == 3 {
            scratch.extend_from_slice(&image.into_rgb8());
        } else {
            scratch.extend_from_slice(&image.into_luma8());
        }
    }
    Ok(scratch)
}
