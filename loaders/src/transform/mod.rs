//! Transforms: the entries of a recipe's `[augment]` lists, which are in `ops`, and the pipeline that runs a list of
//! them.
//!
//! Images enter as interleaved values and leave as planar floats (C, H, W). Bytes are on the scale 0 to 255 until
//! `normalize`, `standardize`, `scale` or `log1p`. A list without these returns floats from 0 to 255. Other types keep
//! their units. A transform's random draws depend only on the seed, the sample id, the epoch and the transform's position in the list.

mod bytes;
mod call;
mod canvas;
mod geometry;
mod list;
mod op;
mod ops;
mod paint;
mod paint_values;
pub mod picture;
mod pipeline;
mod policy;
pub(crate) mod resample;
mod statistics;
#[cfg(test)]
mod testing;

pub use call::canonical;
pub use canvas::Scratch;
pub use geometry::CropRect;
pub use list::{FAST_DECODE, HEAD_WORDS, IGNORE_EXIF, RGB, as_read, exif_of, scaled};
pub use ops::selected_bands;
pub use pipeline::{Conversion, Pipeline};

/// Returns the names of all transforms and of the words that may come before them in a list.
pub fn names() -> Vec<&'static str> {
    list::HEAD_WORDS.into_iter().chain(ops::names()).collect()
}
