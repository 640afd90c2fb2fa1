//! Our kernels: their sources, and how they are loaded and launched.

pub mod module;
