//! Images and their pixels: decoding, resizing, encoding and measuring.

mod cmyk;
mod encode;
mod file;
mod jpeg;
mod limit;
pub(crate) mod moments;
pub(crate) mod pixels;
mod planes;
mod png;
pub(crate) mod recode;
mod resize;
mod rgb;
pub(crate) mod sizes;
pub(crate) mod target;

pub use sizes::{Sizes, Spread};
