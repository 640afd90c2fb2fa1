//! From a record to sums over its pixels: decodes where it must.

use crate::image::moments::Moments;
use loaders::{Example, Format, ImageSpec, decode};

/// The largest image that is decoded, in bytes of pixels: a hostile header must not cost the memory
/// that it names.
const MAX_PIXELS: u64 = 1 << 29;

/// A buffer for decoded images, reused from image to image.
#[derive(Default)]
pub(crate) struct Pixels {
    scratch: Vec<u8>,
}

impl Pixels {
    /// Adds the image of `example` to `moments`.
    ///
    /// Grey PNG and JPEG files in a record that says 3 channels count as RGB, as in training.
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
        let bytes = u64::from(spec.height) * u64::from(spec.width) * u64::from(spec.channels);
        if bytes > MAX_PIXELS {
            return Err(format!("image of {spec}: more than {MAX_PIXELS} bytes"));
        }
        let image = decode::decode(example, spec, &mut self.scratch).map_err(|e| e.to_string())?;
        Ok((image, spec))
    }
}

/// The shape of a record's image, if it is not empty, agrees with what the record says, and (RAW)
/// fits its bytes.
pub(crate) fn check_image(example: &Example<'_>) -> Result<ImageSpec, String> {
    let spec = decode::spec(example).map_err(|e| e.to_string())?;
    if spec.height == 0 || spec.width == 0 || spec.channels == 0 {
        return Err(format!("image of {spec}: it has no pixels"));
    }
    if example.format == Format::Raw {
        let area = u64::from(spec.height) * u64::from(spec.width);
        let expected = area.checked_mul(u64::from(spec.channels));
        if expected != Some(example.encoded.len() as u64) {
            return Err(format!(
                "RAW image of {spec}: expected height x width x channels bytes, got {}",
                example.encoded.len()
            ));
        }
        return Ok(spec);
    }
    for (what, said, is) in [("height", example.height, spec.height), ("width", example.width, spec.width)] {
        if said != 0 && said != is {
            return Err(format!("image/{what} says {said}, the {} file has {is}", example.format));
        }
    }
    Ok(spec)
}
