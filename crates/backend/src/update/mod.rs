//! How an optimizer step is computed, independent of devices: update rules, and the rates that follow from tensor
//! norms.
//!
//! Each rule has a file here with its formula, which the reference and the CPU share, and a file with its CUDA kernel.
//! `list.rs` has a line for each rule, and [`Rule`] is generated from it.
//!
//! Every rule keeps an element at zero if its parameter, gradient and slots are zero, so the padding of blocked layouts
//! stays zero. For rules that divide by a root, this requires `eps > 0`.

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

pub use clipping::{NormedTensor, Norms, UnitTensor, Units};
pub use list::{ParamGroup, Rule, Update};
pub use rmsprop::RmsPropVariant;
pub use rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};
