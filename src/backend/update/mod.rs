//! What one step of an optimizer computes, in numbers that do not depend on a device: update rules, and what the norms of tensors make
//! of a step.
//!
//! A rule is one file here with its formula, which the reference and the CPU compute alike, and its CUDA kernel beside it; [`Rule`]
//! lists them.
//!
//! Every rule leaves an element at zero whose parameter, gradient and slots are zero, so the padding of blocked layouts stays
//! zero; those that divide by a root need `eps > 0` for it.

mod adagrad;
mod adam;
mod catalogue;
mod group;
mod lars;
mod norms;
pub mod rates;
mod real;
mod rmsprop;
mod rule;
mod sgd;

pub use adagrad::AdagradRule;
pub use adam::AdamRule;
pub use catalogue::Rule;
pub use group::{ParamGroup, Update};
pub use lars::LarsRule;
pub use norms::{Normed, Norms};
pub use real::Real;
pub use rmsprop::{RmsPropRule, RmsPropVariant};
pub use rule::{ElementLoop, GroupStep, Kernel, UpdateRule};
pub use sgd::SgdRule;
