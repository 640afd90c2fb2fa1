//! Our kernels: their sources, how they are loaded, and their declarations, by which the host launches them. An op's own kernels are
//! declared in its file in `ops`, those of the optimizer in `update`, and all others in `declarations`.

#[cfg(test)]
mod assembly;
pub mod declarations;
pub mod kernel;
pub mod module;
mod source;
pub mod update;

#[cfg(test)]
pub use source::signature;
