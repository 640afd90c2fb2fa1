//! Learning-rate schedules: linear scaling, warm-up and decay as one pure function of the step.

mod decay;
mod rates;
mod spec;
#[cfg(test)]
mod tests;
mod warmup;

pub use decay::{AfterWarmup, Constant, Cosine, Decay, Exponential, Polynomial, ScheduleError, Step};
pub use rates::Schedule;
pub use spec::{ScheduleKind, ScheduleSpec};
pub use warmup::WarmupFrom;
