//! The recipe: everything that defines what a run computes, as one TOML file. How a run is started (ranks, devices) is not in here.
//!
//! A key is one line of a [`section!`](schema): in `recipe` and `sections` here, in [`engine::optim`] those of optimizers and
//! schedules. Reading is in `load`, the list of all keys in `keys`.

mod absent;
mod changes;
mod check;
mod class_weights;
mod codec;
mod differ;
mod distill;
mod docs;
mod done_here;
mod elsewhere;
mod error;
pub mod every;
pub mod hint;
pub mod keys;
mod load;
mod loss;
mod mix;
mod options;
mod ranks;
#[allow(clippy::module_inception)]
mod recipe;
mod rename;
mod scores;
mod scoring;
mod sections;
mod split;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub use backend::Precision;
pub use changes::Changes;
pub use check::Known;
pub use class_weights::ClassWeights;
pub use codec::Codec;
pub use distill::DistillSpec;
pub use docs::markdown;
pub use engine::optim::OptimizerSpec as Optimizer;
pub use engine::optim::schedule::{ScheduleError, ScheduleSpec};
pub use error::Error;
pub use every::Every;
pub use load::Loaded;
pub use loaders::text::{did_you_mean, nearest};
pub use loss::{LossKind, LossSpec, OverClasses};
pub use mix::MixSpec;
pub use options::{ImageCache, OnCorrupt, Overlap, TransportSetting};
pub use recipe::Recipe;
pub use rename::Rename;
pub use schema::matches;
pub use scoring::{Eval, Stop};
pub use sections::{Augment, Checkpoint, Ema, Freeze, Init, Loader, Log, Reduce};
pub use split::{ScoredSplits, judging_split};
pub use sync::Sync;
