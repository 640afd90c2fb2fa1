//! Our kernels: their sources, loading them, and their declarations, with which the host launches them. An operation's
//! own kernels are declared in its file in `ops`, the optimizer's in `update`, and all others in `declarations`.

#[cfg(test)]
mod assembly;
pub mod declarations;
pub mod kernel;
pub mod module;
mod source;
pub mod update;

#[cfg(test)]
pub use source::signature;
