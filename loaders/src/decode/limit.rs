//! The largest image that is decoded, for conversion, checks and training alike.

use crate::fault::Fault;
use crate::spec::ImageSpec;

/// The most pixels of a PNG or JPEG file that is decoded: a hostile header must not cost the memory that it names.
pub const MAX_PIXELS: usize = 100_000_000;

/// Accepts an image of 1 to [`MAX_PIXELS`] pixels.
///
/// # Errors
/// [`Fault::PixelCount`], whose text gives the size, the limit and what to do.
pub fn check_pixels(spec: ImageSpec) -> Result<(), Fault> {
    match spec.pixels() {
        1..=MAX_PIXELS => Ok(()),
        _ => Err(Fault::PixelCount { got: spec, limit: MAX_PIXELS }),
    }
}
