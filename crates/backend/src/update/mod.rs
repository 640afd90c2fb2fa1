//! What one step of an optimizer computes, in numbers that do not depend on a device: update rules, and what the norms of tensors make
//! of a step.
//!
//! A rule is one file here with its formula, which the reference and the CPU compute alike, and its CUDA kernel beside it; `list.rs`
//! has a line for each, and [`Rule`] is made from it.
//!
//! Every rule leaves an element at zero whose parameter, gradient and slots are zero, so the padding of blocked layouts stays
//! zero; those that divide by a root need `eps > 0` for it.

mod catalogue;
mod group;
mod list;
mod norms;
pub mod rates;
mod real;
mod rule;
mod units;

macro_rules! modules {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        $(mod $file;
        pub use $file::$rule;)+
    };
}
crate::for_each_optimizer!(modules);

pub use catalogue::Rule;
pub use group::{ParamGroup, Update};
pub use norms::{Normed, Norms};
pub use real::Real;
pub use rmsprop::RmsPropVariant;
pub use rule::{ElementLoop, GroupStep, Kernel, UpdateRule};
pub use units::{UnitTensor, Units};
