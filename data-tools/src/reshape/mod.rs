//! New data sets of the records of existing ones, which are copied as they are: other shards, several in one, a split drawn, a smaller set;
//! and archives for other programs.

mod commands;
mod export;
mod picks;
mod reshaped;
mod share;
mod write;

pub use commands::{merge, reshard, sample, split};
pub use export::{Exported, export_webdataset};
pub use reshaped::{Reshaped, Reshaping};
pub use share::Share;
