//! The recipe: a TOML file that defines everything that a run computes. It does not say how the run is started (ranks,
//! devices).
//!
//! Each key is one line of a [`section!`](schema). The sections are in `sections`, except those of optimizers and
//! schedules, which are in [`engine::optim`]. `load` reads a recipe, and `keys` has the list of all keys.

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
pub use engine::optim::OptimizerSpec as Optimizer;
pub use engine::optim::schedule::ScheduleSpec;
pub use error::Error;
pub use keys::markdown;
pub use load::Loaded;
pub use loss::{ClassWeights, DistillSpec, LossKind, LossSpec, MixSpec, OverClasses};
pub use options::{Codec, ImageCache, OnCorrupt, Overlap, Stem, Sync, TransportSetting};
pub use rename::Rename;
pub use schema::matches;
pub use scoring::{Eval, Every, ScoredSplits, Stop, evaluation_split};
pub use sections::{Augment, Checkpoint, Ema, Freeze, Init, Loader, Log, Recipe, Reduce};
