//! Optimizers over the flat parameter arena, and learning-rate schedules as pure functions of the step.
//!
//! A catalogue entry per update rule; [`Optimizer`] runs any of them over a graph, [`spec`] is what a recipe says of them.

mod adam;
mod ema;
mod lars;
mod optimizer;
mod rmsprop;
pub mod schedule;
pub mod sgd;
pub mod spec;

pub use ema::Ema;
pub use optimizer::{Optimizer, Policy, Stepped};
pub use schedule::{Schedule, ScheduleSpec};
pub use spec::{Form, OptimizerSpec};

use crate::backend::Rule;

/// A line of the catalogue.
pub struct Entry {
    /// `optimizer.kind`.
    pub name: &'static str,
    /// Keys of `[optimizer]` that it has beside those that all have.
    pub keys: &'static [&'static str],
    /// Its method, from settings that have passed [`OptimizerSpec::check`].
    pub build: fn(&OptimizerSpec) -> Box<dyn Method>,
}

/// All update rules.
pub const CATALOGUE: &[Entry] = &[sgd::ENTRY, adam::ADAM, adam::ADAMW, rmsprop::ENTRY, lars::ENTRY];

/// An update rule with its settings.
pub trait Method {
    /// Names of its slots, PyTorch's, in the order of its [`Rule`], each with the value that it starts from.
    fn slots(&self) -> &'static [(&'static str, f32)];

    /// Its numbers for optimizer step `step`, counted from 1.
    fn rule(&self, step: u64) -> Rule;
}
