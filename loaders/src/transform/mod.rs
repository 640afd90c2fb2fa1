//! Transforms: what a recipe's `[augment]` lists name, one file each in `ops`, and the pipeline that runs a list of them.
//!
//! Images enter as bytes and leave as planar floats (C, H, W). Values are on the scale 0 to 255 until `normalize` or `standardize`; a
//! list without either yields floats 0 to 255. Random transforms draw from (seed, sample id, epoch, position in the list) alone.

mod arguments;
mod bytes;
mod call;
mod canvas;
mod crop_rect;
mod cropped;
mod device;
mod dirichlet;
mod geometry;
mod list;
mod moments;
mod moves;
mod op;
mod ops;
mod paint;
pub mod picture;
mod pipeline;
mod planes;
mod policy;
mod rectangle;
pub(crate) mod resample;
mod resized;
mod rgb;
mod scale;
mod scaled;
mod scratch;
mod size;
mod stored;
#[cfg(test)]
mod testing;
mod window;
mod work;

pub use call::canonical;
pub use canvas::Canvas;
pub use crop_rect::CropRect;
pub use list::{FAST_DECODE, HEAD_WORDS, IGNORE_EXIF, RGB, exif_of};
pub use op::{Sizes, Transform, Varied};
pub use pipeline::Pipeline;
pub use scaled::scaled;
pub use scratch::Scratch;

/// Bare names of all transforms, and of what may stand ahead of them.
pub fn names() -> Vec<&'static str> {
    list::HEAD_WORDS.into_iter().chain(ops::names()).collect()
}
