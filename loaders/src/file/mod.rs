//! Opening files safely and writing them whole.

pub mod regular;
pub mod replace;
