//! Transforms: what a recipe's `[augment]` lists name, one file each in `ops`, and the pipeline that runs a list of them.
//!
//! Images enter as bytes and leave as planar floats (C, H, W). Values are on the scale 0 to 255 until `normalize` or `standardize`; a
//! list without either yields floats 0 to 255. Random transforms draw from (seed, sample id, epoch, position in the list) alone.

mod bytes;
mod call;
mod canvas;
mod geometry;
mod list;
mod op;
mod ops;
mod paint;
pub mod picture;
mod pipeline;
mod policy;
pub(crate) mod resample;
#[cfg(test)]
mod testing;

pub use call::canonical;
pub use canvas::{Canvas, Scratch};
pub use geometry::CropRect;
pub use list::{FAST_DECODE, HEAD_WORDS, IGNORE_EXIF, RGB, exif_of, scaled};
pub use op::{Sizes, Transform, Varied};
pub use pipeline::Pipeline;

/// Bare names of all transforms, and of what may stand ahead of them.
pub fn names() -> Vec<&'static str> {
    list::HEAD_WORDS.into_iter().chain(ops::names()).collect()
}
