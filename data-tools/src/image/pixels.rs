//! From a record to the pixels of its image, with `loaders`' decoder and the limits of training.

use super::moments::Moments;
use loaders::decode::{Decoder, Stored};
use loaders::{Example, Format, ImageSpec};

/// Pixels of each side that a reduced image has, unless it is smaller itself.
const REDUCED: u32 = 16;

/// An image as interleaved bytes, perhaps smaller than it is stored.
pub(crate) struct Reduced<'a> {
    pub height: usize,
    pub width: usize,
    /// 1 for the luma of a colour JPEG.
    pub channels: usize,
    /// At least `height * width * channels` bytes.
    pub bytes: &'a [u8],
}

/// A decoder and its buffer, reused from image to image.
#[derive(Default)]
pub(crate) struct Pixels {
    decoder: Decoder,
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
        let mut spec = agrees(example, &self.decoder.open(example).map_err(|e| e.to_string())?)?;
        if example.format != Format::Raw && example.channels == 3 {
            spec.channels = 3;
        }
        let image = self.decoder.decode_whole(example, spec, &mut self.scratch).map_err(|e| e.to_string())?;
        Ok((image, spec))
    }

    /// A record's image, if training can decode all of it and it agrees with the size in the record. A JPEG is read at the smallest size
    /// that leaves [`REDUCED`] pixels a side, which takes all of its data.
    pub(crate) fn reduced<'a>(&'a mut self, example: &Example<'a>) -> Result<Reduced<'a>, String> {
        let stored = self.decoder.open(example).map_err(|e| e.to_string())?;
        let spec = agrees(example, &stored)?;
        if stored.format() == Format::Raw {
            let (height, width) = (spec.height as usize, spec.width as usize);
            return Ok(Reduced { height, width, channels: spec.channels as usize, bytes: example.encoded });
        }
        // all data is read for luma alone, too
        let channels = if stored.planes().is_some() { 1 } else { spec.channels };
        let enough = |reduction: &u32| spec.height.min(spec.width).div_ceil(*reduction) >= REDUCED;
        let reduction = [8, 4, 2].into_iter().find(enough).unwrap_or(1);
        let decoded = self.decoder.reduced(stored, example.encoded, reduction, channels, &mut self.scratch);
        let (height, width) = decoded.map_err(|e| e.to_string())?;
        Ok(Reduced { height, width, channels: channels as usize, bytes: &self.scratch })
    }
}

/// The shape of a record's image by its header, if it agrees with the size in the record.
pub(crate) fn header(example: &Example<'_>) -> Result<ImageSpec, String> {
    agrees(example, &Decoder::default().open(example).map_err(|e| e.to_string())?)
}

/// The shape that is shown of an image, if the file's own agrees with the size in the record.
fn agrees(example: &Example<'_>, image: &Stored<'_>) -> Result<ImageSpec, String> {
    let (spec, file) = (image.spec(), image.file_spec());
    if example.format == Format::Raw {
        return Ok(spec);
    }
    for (what, stored, actual) in [("height", example.height, file.height), ("width", example.width, file.width)] {
        if stored != 0 && stored != actual {
            return Err(format!("image/{what} says {stored}, the {} file has {actual}", example.format));
        }
    }
    Ok(spec)
}
