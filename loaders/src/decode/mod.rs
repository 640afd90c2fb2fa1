//! From an example's bytes to pixels: RAW, PNG and JPEG become rows of interleaved u8 channels, JPEG only in the part that is needed.
//! Cropping, resizing and floats are transforms.
//!
//! If RGB is expected, grey is repeated three times; colour is never made grey. Alpha is dropped, 16-bit channels are cut to 8. Images
//! are turned as their EXIF orientation says, unless that is to be ignored.

mod decoder;
mod jpeg;
mod png;
mod region;

/// For the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use super::jpeg::seal_entry_points;
}

pub use decoder::{Decoder, Stored, decode, other_format, spec, spec_as};
pub use jpeg::{check_entry_points, entry_points};
pub(crate) use region::{Decoded, Need, Region};
pub use region::{Exif, Turn};
