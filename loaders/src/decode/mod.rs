//! From an example's bytes to pixels.

mod decoder;
mod jpeg;

pub(crate) use decoder::Decoder;
pub use decoder::{MOST_PIXELS, decode, spec};
