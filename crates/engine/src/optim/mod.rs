//! Optimizers over the flat parameter arena, and learning-rate schedules as pure functions of the step.
//!
//! Each optimizer has its own file. It defines the settings, which are keys of a recipe, and the coefficients of a
//! step. [`backend::update`] has the formulas for one element and the list of all optimizers. [`Optimizer`] runs any of
//! them over a graph.

mod ema;
mod method;
mod optimizer;
pub mod score;
pub mod spec;

/// Learning-rate schedules: linear scaling, warm-up and decay as a pure function of the step.
pub mod schedule {
    mod decay;
    mod rates;
    #[cfg(test)]
    mod tests;

    pub use decay::{
        AfterWarmup, Anneal, Constant, Cosine, Decay, Exponential, OneCycle, Plateau, Polynomial, ScheduleError, Step,
        WarmRestarts, WarmupFrom,
    };
    pub use rates::{Extension, Schedule, ScheduleKind, ScheduleSpec};
}

macro_rules! modules {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        $(mod $file;
        pub use $file::{$($settings),+};)+
    };
}
backend::for_each_optimizer!(modules);

pub use ema::{Averaging, Ema};
pub use method::{Method, OptimizerError, SlotSpec};
pub use optimizer::{Optimizer, StepOutcome};
pub use schedule::{Schedule, ScheduleSpec};
pub use spec::{Group, OptimizerKind, OptimizerSpec};
