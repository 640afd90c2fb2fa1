//! Opening and writing files.

pub(crate) mod regular;
pub mod replace;
