//! Events of a run, and the sinks that show or store them. Rank 0 alone has a [`Reporter`] with sinks; the others have a silent one and
//! the same calling code.

mod event;
pub mod history;
mod jsonl;
mod message;
pub mod page;
mod plain;
mod reporter;
mod sink;
mod tensorboard;
mod terminal;
mod text;
mod window;

pub use event::{Checkpoint, End, Epoch, Eval, Event, Exchange, Loading, Start, Step};
pub use jsonl::{Jsonl, write_whole};
pub use plain::Plain;
pub use reporter::{Reporter, screen};
pub use sink::{Error, Sink};
pub use tensorboard::Tensorboard;
pub use terminal::Terminal;
