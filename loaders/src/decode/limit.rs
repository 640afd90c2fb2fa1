//! The largest image that is decoded, for conversion, checks and training alike.

use crate::fault::Fault;
use crate::spec::ImageSpec;

/// The most pixels of a PNG or JPEG file that is decoded: as many as fit into 512 MiB as RGB. A damaged or hostile header must not cost
/// the memory that it names.
pub const MAX_PIXELS: usize = (512 << 20) / 3;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_512_mib_of_rgb() {
        assert!(check_pixels(ImageSpec::new(9500, 11_000, 3)).is_ok());
        assert!(check_pixels(ImageSpec::new(1, MAX_PIXELS as u32, 3)).is_ok());
        let refused = |height, width| check_pixels(ImageSpec::new(height, width, 3)).unwrap_err().to_string();
        assert_eq!(
            refused(30_000, 20_000),
            "image of 30000x20000x3 (height x width x channels): expected 1 to 178956970 pixels; scale it down first"
        );
        assert!(refused(0, 5).starts_with("image of 0x5x3 "));
        assert!(refused(u32::MAX, u32::MAX).contains("expected 1 to 178956970 pixels"));
    }
}
