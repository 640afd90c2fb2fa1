//! Images and their pixels: decoding, scaling, encoding and measuring.

pub(crate) mod moments;
pub(crate) mod pixels;
mod planes;
pub(crate) mod recode;
pub(crate) mod sizes;

pub use sizes::{Sizes, Spread};
