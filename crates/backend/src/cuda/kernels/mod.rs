//! Our kernels: their sources, how they are loaded, and their declarations, by which the host launches them. An op's own kernels are
//! declared in its file in `ops`; those of several ops and passes, and the many of norm, in `x.rs` beside their source `x.cu`.

pub mod arena;
#[cfg(test)]
mod assembly;
pub mod bias;
pub mod codec;
pub mod elementwise;
pub mod input;
pub mod kernel;
pub mod loss;
pub mod module;
pub mod norm;
pub mod shortcut;
#[cfg(test)]
pub mod signature;
pub mod soft_loss;
mod source;
pub mod update;
mod variant;
