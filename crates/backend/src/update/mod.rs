//! What one step of an optimizer computes, in numbers that do not depend on a device: update rules, and what the norms of tensors make
//! of a step.
//!
//! A rule is one file here with its formula, which the reference and the CPU compute alike, and its CUDA kernel beside it; `list.rs`
//! has a line for each, and [`Rule`] is made from it.
//!
//! Every rule leaves an element at zero whose parameter, gradient and slots are zero, so the padding of blocked layouts stays
//! zero; those that divide by a root need `eps > 0` for it.

mod clipping;
mod list;
pub mod rates;
mod rule;

macro_rules! modules {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        $(mod $file;
        pub use $file::$rule;)+
    };
}
crate::for_each_optimizer!(modules);

pub use clipping::{Normed, Norms, UnitTensor, Units};
pub use list::{ParamGroup, Rule, Update};
pub use rmsprop::RmsPropVariant;
pub use rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};
