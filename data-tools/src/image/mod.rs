//! Images and their pixels: decoding, resizing, encoding and measuring.

mod encode;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod moments;
pub(crate) mod pixels;
mod planes;
pub(crate) mod recode;
mod resize;
mod rgb;
pub(crate) mod sizes;
pub(crate) mod target;
mod tiff_variant;

pub use sizes::{Sizes, Spread};
