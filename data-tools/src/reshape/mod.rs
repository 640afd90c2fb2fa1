//! New data sets of the records of existing ones, which are copied as they are: other shards, several in one, a split drawn, a smaller set;
//! and archives for other programs.

mod commands;
mod export;
mod write;

pub use commands::{Share, merge, reshard, sample, split};
pub use export::{Exported, export_webdataset};
pub use write::{Reshaped, Reshaping};
