//! From a record to the pixels of its image, with `loaders`' decoder and its limit of pixels.

use super::moments::Moments;
use loaders::{Example, Format, ImageSpec, decode};

/// A buffer for decoded images, reused from image to image.
#[derive(Default)]
pub(crate) struct Pixels {
    scratch: Vec<u8>,
}

impl Pixels {
    /// Adds the image of `example` to `moments`.
    ///
    /// Grey PNG and JPEG files in a record of 3 channels count as RGB, as in training.
    pub(crate) fn measure(&mut self, example: &Example<'_>, moments: &mut Moments) -> Result<(), String> {
        let (image, spec) = self.decode(example)?;
        moments.add(image, spec.channels as usize)
    }

    /// The whole image of `example` as interleaved bytes, and its shape.
    pub(crate) fn decode<'a>(&'a mut self, example: &Example<'a>) -> Result<(&'a [u8], ImageSpec), String> {
        let mut spec = check_image(example)?;
        if example.format != Format::Raw && example.channels == 3 {
            spec.channels = 3;
        }
        let image = decode::decode(example, spec, &mut self.scratch).map_err(|e| e.to_string())?;
        Ok((image, spec))
    }
}

/// The shape of a record's image, if training could decode it and it agrees with the size in the record.
pub(crate) fn check_image(example: &Example<'_>) -> Result<ImageSpec, String> {
    let spec = decode::spec(example).map_err(|e| e.to_string())?;
    if example.format == Format::Raw {
        return Ok(spec);
    }
    for (what, stored, actual) in [("height", example.height, spec.height), ("width", example.width, spec.width)] {
        if stored != 0 && stored != actual {
            return Err(format!("image/{what} says {stored}, the {} file has {actual}", example.format));
        }
    }
    Ok(spec)
}
