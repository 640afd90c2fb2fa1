//! All update rules. A new one is a file beside this, its kernel, and a line in the list below.

use super::real::Real;
use super::rule::{ElementLoop, GroupStep, Kernel, UpdateRule};

/// Defines [`Rule`], which calls the rule that it holds.
macro_rules! rules {
    ($($name:ident($rule:ty) = $source:literal),+ $(,)?) => {
        /// An update rule with its numbers for one step.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Rule {
            $(#[doc = concat!("See `backend/update/", $source, "` and the Rust file beside it.")] $name($rule)),+
        }

        impl Rule {
            /// Name and text of each rule's CUDA source, which needs `update.cu` before it.
            pub const SOURCES: &'static [(&'static str, &'static str)] = &[$(($source, include_str!($source))),+];

            /// See [`UpdateRule::slots`].
            pub fn slots(&self) -> usize {
                match self { $(Rule::$name(rule) => rule.slots()),+ }
            }

            /// See [`UpdateRule::run`].
            pub fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
                match self { $(Rule::$name(rule) => rule.run(group, elements)),+ }
            }

            /// See [`UpdateRule::kernel`].
            pub fn kernel(&self) -> Kernel {
                match self { $(Rule::$name(rule) => rule.kernel()),+ }
            }

            /// See [`UpdateRule::adapts`].
            pub fn adapts(&self) -> bool {
                match self { $(Rule::$name(rule) => rule.adapts()),+ }
            }

            /// See [`UpdateRule::trust`].
            pub fn trust(&self, weight: f64, gradient: f64, weight_decay: f64, lr: f64) -> f64 {
                match self { $(Rule::$name(rule) => rule.trust(weight, gradient, weight_decay, lr)),+ }
            }
        }
    };
}

rules! {
    Sgd(super::sgd::SgdRule) = "sgd.cu",
    Lars(super::lars::LarsRule) = "lars.cu",
    Adam(super::adam::AdamRule) = "adam.cu",
    RmsProp(super::rmsprop::RmsPropRule) = "rmsprop.cu",
    Adagrad(super::adagrad::AdagradRule) = "adagrad.cu",
}
