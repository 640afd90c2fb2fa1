//! Events of a run, and the sinks that show or store them. Rank 0 alone has a [`Reporter`] with sinks; the others have a silent one and
//! the same calling code.

pub mod evaluation_file;
mod event;
pub mod history;
mod jsonl;
mod message;
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
/// Name of the fact that a run begins with the best score so far of an earlier part.
pub const BEST: &str = "best";

pub use event::{Checkpoint, End, Epoch, Eval, Event, Exchange, Layers, Loading, Spread, Start, Step, TensorSpread};
pub use jsonl::{Jsonl, write_whole};
pub use plain::Plain;
pub use rates::{RateSearch, Suggestion};
pub use reporter::{Advice, Error, LOG, Reporter, Sink, Verbosity};
pub use tensorboard::Tensorboard;
pub use terminal::Terminal;
pub use text::best;
