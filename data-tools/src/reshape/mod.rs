//! Makes new data sets from the records of existing ones: with other shards, merged, with a new split, or with fewer
//! samples. Records are copied unchanged where possible. Also exports archives for other programs.

mod commands;
mod export;
mod write;

pub use commands::{Share, merge, reshard, sample, split};
pub use export::{ExportSummary, export_webdataset};
pub use write::{ReshapeOptions, ReshapeSummary};
