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
pub use extract::{Extracted, SHEET, extract};
pub use index::{Indexed, index, index_with};
pub(crate) use index::{Indexing, index_as};
pub use info::{FirstImage, Info, SplitInfo, info};
pub(crate) use shard_files::{ShardFile, discover};
pub use show::{ContactSheet, ShowOptions, Shown, Thumbnail, Thumbnails, matrix, show};
pub use stats::{SeveralLabels, Stats, stats};
pub use verify::{Bad, Report, verify};
