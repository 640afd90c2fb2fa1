//! The recipe: everything that defines what a run computes, as one TOML file. How a run is started (ranks, devices) is not in here.
//!
//! A key is one line of a [`section!`](schema): in `sections` here, in [`engine::optim`] those of optimizers and
//! schedules. Reading is in `load`, the list of all keys in `keys`.

mod changes;
mod check;
mod error;
pub mod hint;
pub mod keys;
mod load;
mod loss;
mod options;
mod rename;
pub mod scoring;
mod sections;
#[cfg(test)]
mod tests;

pub use backend::Precision;
pub use changes::Changes;
pub use check::Known;
pub use engine::optim::OptimizerSpec as Optimizer;
pub use engine::optim::schedule::{ScheduleError, ScheduleSpec};
pub use error::Error;
pub use keys::markdown;
pub use load::Loaded;
pub use loaders::text::{did_you_mean, nearest};
pub use loss::{ClassWeights, DistillSpec, LossKind, LossSpec, MixSpec, OverClasses};
pub use options::{Codec, ImageCache, OnCorrupt, Overlap, Sync, TransportSetting};
pub use rename::Rename;
pub use schema::matches;
pub use scoring::{Eval, Every, ScoredSplits, Stop, judging_split};
pub use sections::{Augment, Checkpoint, Ema, Freeze, Init, Loader, Log, Recipe, Reduce};
