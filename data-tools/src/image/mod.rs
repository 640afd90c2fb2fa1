//! Decodes, resizes, encodes and measures images.

pub(crate) mod band_stats;
pub(crate) mod false_colours;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod moments;
pub(crate) mod pixels;
pub(crate) mod recode;

pub use moments::{Sizes, Spread};
