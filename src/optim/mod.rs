//! Optimizers over the flat parameter arena, and learning-rate schedules as pure functions of the step.
//!
//! An optimizer is one file here: its settings, which are keys of a recipe, and its numbers for a step. How a step moves an element is
//! in [`crate::backend::update`]. [`Optimizer`] runs any of them over a graph, [`spec`] lists them.

mod adagrad;
mod adam;
mod ema;
mod lars;
mod method;
mod optimizer;
mod rmsprop;
pub mod schedule;
pub mod sgd;
pub mod spec;

pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use ema::Ema;
pub use lars::Lars;
pub use method::{Method, OptimizerError, SlotSpec};
pub use optimizer::{Optimizer, Policy, Stepped};
pub use rmsprop::RmsProp;
pub use schedule::{Schedule, ScheduleSpec};
pub use sgd::Sgd;
pub use spec::{OptimizerKind, OptimizerSpec};
