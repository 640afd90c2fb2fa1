//! What a canvas works with beside its floats: memory that is kept from image to image.

use crate::transform::bytes::ByteImage;
use crate::transform::resample::Resampler;

/// Memory of a canvas, kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub resampler: Resampler,
    /// The image while it is planes of bytes.
    pub bytes: ByteImage,
}
