//! Optimizers over the flat parameter arena, and learning-rate schedules as pure functions of the step.

pub mod schedule;
pub mod sgd;

pub use schedule::{Schedule, ScheduleSpec};
pub use sgd::SgdMomentum;
