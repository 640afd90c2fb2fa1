//! Reads existing data sets: describes, checks, measures and shows them, and makes missing indexes.

mod copies;
mod extract;
mod index;
mod info;
mod manifest;
mod shard_files;
mod show;
mod stats;
mod verify;
mod walk;

pub use copies::{COPIES, CopyNames, NearCopy, write_duplicates};
pub use extract::{ExtractSummary, SHEET, extract};
pub(crate) use index::{IndexOptions, index_with_options};
pub use index::{IndexSummary, index};
pub use info::{FirstImage, Info, SplitInfo, info};
pub(crate) use shard_files::{ShardFile, discover};
pub use show::{ContactSheet, ShowOptions, ShowSummary, Thumbnail, Viewer, check_shown_bands, matrix, show};
pub use stats::{LabelCounts, Stats, stats};
pub use verify::{ShardFault, VerifyReport, verify};
