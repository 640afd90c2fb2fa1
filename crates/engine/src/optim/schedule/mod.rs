//! Learning-rate schedules: linear scaling, warm-up and decay as one pure function of the step.

mod decay;
mod rates;
#[cfg(test)]
mod tests;

pub use decay::{
    AfterWarmup, Anneal, Constant, Cosine, Decay, Exponential, OneCycle, Plateau, Polynomial, ScheduleError, Step,
    WarmRestarts, WarmupFrom,
};
pub use rates::{Extension, Schedule, ScheduleKind, ScheduleSpec};
