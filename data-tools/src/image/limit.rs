//! The largest image that is converted: the one that training can decode, with the same message.

use super::rgb::Size;
use loaders::ImageSpec;
use loaders::decode::check_pixels;

/// Refuses an RGB image without pixels, or with more than `loaders` decodes: a hostile header must not cost the memory that it
/// claims.
pub(super) fn check(size: Size) -> Result<(), String> {
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    check_pixels(ImageSpec::new(side(size.height), side(size.width), 3)).map_err(|fault| fault.to_string())
}
