//! How an optimizer step is computed, independent of devices: update rules, and the rates that follow from tensor
//! norms.
//!
//! Each rule has a file here with its formula, which the reference and the CPU share, and a CUDA kernel in `rules.cu`.
//! `list.rs` has a line for each rule, and [`Rule`] is generated from it.
//!
//! Every rule keeps an element at zero if its parameter, gradient and slots are zero, so the padding of blocked layouts
//! stays zero. For rules that divide by a root, this requires `eps > 0`.

mod clipping;
mod list;
mod rule;

macro_rules! modules {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        $(mod $file;
        pub use $file::$rule;)+
    };
}
crate::for_each_optimizer!(modules);

pub use clipping::{NormedTensor, Norms, UnitTensor, Units};
pub use list::{ParamGroup, Rule, Update};
pub use rmsprop::RmsPropVariant;
pub use rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};

/// The factors that all updates in a step share, and their indices in a buffer. From `FIRST` on, the buffer has each
/// tensor's factor on the learning rate, including the trust ratio. The tensors are ordered like
/// [`Norms::tensors`](Norms::tensors).
pub mod rates {
    /// Factor on all gradients from clipping by norm, or 1.
    pub const GRADIENT: usize = 0;
    /// Norm over all gradients together, before clipping.
    pub const NORM: usize = 1;
    /// Always 1: the factor for groups without their own.
    pub const PLAIN: usize = 2;
    /// Index of the first tensor's factor.
    pub const FIRST: usize = 3;

    /// Returns the factors for a step that needs no norms.
    pub fn plain(tensors: impl Iterator<Item = f32>) -> Vec<f32> {
        [1.0, 0.0, 1.0].into_iter().chain(tensors).collect()
    }
}
