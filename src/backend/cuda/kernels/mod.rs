//! Our kernels: beside each source `x.cu` its declarations in `x.rs`, by which the host launches them; how they are loaded.

pub mod arena;
pub mod bias;
pub mod codec;
pub mod dropout;
pub mod elementwise;
pub mod input;
pub mod kernel;
pub mod loss;
pub mod lrn;
pub mod module;
pub mod norm;
pub mod pool;
pub mod shortcut;
mod source;
pub mod update;
