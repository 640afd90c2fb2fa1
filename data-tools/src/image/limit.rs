//! The largest image that is converted: the one that training can decode, with the same message.

use super::rgb::Size;
use loaders::ImageSpec;
use loaders::decode::MOST_PIXELS;
use loaders::error::Fault;

/// Refuses an RGB image without pixels, or with more than `loaders` decodes: a hostile header must not cost the memory that it
/// claims.
pub(super) fn check(size: Size) -> Result<(), String> {
    if (1..=MOST_PIXELS).contains(&size.height.saturating_mul(size.width)) {
        return Ok(());
    }
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let got = ImageSpec::new(side(size.height), side(size.width), 3);
    Err(Fault::TooLarge { got }.to_string())
}
