//! Decodes, resizes, encodes and measures images.

mod foreign;
#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod moments;
pub(crate) mod pixels;
pub(crate) mod recode;

pub use moments::{Sizes, Spread};
