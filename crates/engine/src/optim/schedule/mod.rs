//! Learning-rate schedules: linear scaling, warm-up and decay as one pure function of the step.

mod decay;
mod extend;
mod one_cycle;
mod plateau;
mod rates;
mod restarts;
mod spec;
mod stretch;
#[cfg(test)]
mod tests;
mod warmup;

pub use decay::{AfterWarmup, Constant, Cosine, Decay, Exponential, Polynomial, ScheduleError, Step};
pub use extend::Extension;
pub use one_cycle::{Anneal, OneCycle};
pub use plateau::{Plateau, PlateauState};
pub use rates::Schedule;
pub use restarts::WarmRestarts;
pub use spec::{ScheduleKind, ScheduleSpec};
pub use warmup::WarmupFrom;
