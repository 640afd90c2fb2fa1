//! The events of a run and the sinks that display or store them. Only rank 0 has a [`Reporter`] with sinks. The other
//! ranks call the same code with a silent reporter.

pub mod evaluation_file;
mod event;
pub mod history;
mod jsonl;
mod pace;
pub mod page;
mod plain;
pub mod predictions;
mod rates;
mod reporter;
mod tensorboard;
mod terminal;
mod text;

pub use evaluation_file::EvaluationFile;
/// Key in [`Start::facts`] of the best score that a resumed run had before.
pub const BEST: &str = "best";

pub use event::{
    BestScore, Checkpoint, End, Epoch, Eval, Event, Exchange, Layers, Loading, Spread, Start, Step, TensorSpread,
};
pub use jsonl::{Jsonl, write_whole};
pub use plain::Plain;
pub use rates::{RateSearch, Suggestion};
pub use reporter::{Advice, Error, LOG, Reporter, Sink, Verbosity};
pub use tensorboard::Tensorboard;
pub use terminal::Terminal;
pub use text::{best, r2_text};
