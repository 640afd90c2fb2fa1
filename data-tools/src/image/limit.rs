//! The largest image that is converted.

use super::rgb::Size;

/// Bytes of RGB pixels of the largest image: a hostile header must not cost the memory that it claims.
const MAX_BYTES: usize = 1 << 29;

/// Refuses an image without pixels, or with more than the limit.
pub(super) fn check(size: Size) -> Result<(), String> {
    let Size { height, width } = size;
    if height == 0 || width == 0 {
        return Err(format!("an image of {height} x {width} pixels"));
    }
    match height.saturating_mul(width).saturating_mul(3) {
        bytes if bytes > MAX_BYTES => Err(format!(
            "an image of {height} x {width} pixels takes {bytes} bytes; the limit is {MAX_BYTES}: scale it down first"
        )),
        _ => Ok(()),
    }
}
