//! Decodes examples to pixels. RAW, PNG and JPEG become rows of interleaved u8 channels. For JPEG, only the needed part
//! is decoded. Cropping, resizing and conversion to floats are transforms.
//!
//! If RGB is expected, grey is repeated three times. Colour images are never converted to grey. Alpha is dropped, and
//! 16-bit channels are reduced to 8 bits. The EXIF orientation is applied unless the caller wants to ignore it.

mod decoder;
mod jpeg;
mod png;
mod region;

/// Functions that only the fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use super::jpeg::seal_entry_points;
}

pub use decoder::{Decoder, OpenedImage, OtherFormat, decode, other_format, spec, spec_as};
pub use jpeg::{check_entry_points, entry_points};
pub(crate) use region::{Decoded, Need, Region};
pub use region::{Exif, ExifOrientation};
