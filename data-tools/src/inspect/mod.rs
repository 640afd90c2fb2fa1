//! Reads existing data sets: describes, checks, measures and shows them, and makes missing indexes.

mod bad;
mod check;
mod copies;
mod extract;
mod index;
mod info;
mod labels;
mod manifest;
mod measure;
mod near_copy;
mod picture_file;
mod scan;
mod shard_files;
mod shard_index;
mod show;
mod stats;
mod verify;
mod walk;

pub use bad::Bad;
pub use extract::{Extracted, extract};
pub use index::{Indexed, index, index_with};
pub(crate) use index::{Indexing, index_as};
pub use info::{FirstImage, Info, SplitInfo, info};
pub use near_copy::{COPIES, CopyNames, NearCopy, write_duplicates};
pub use picture_file::SHEET;
pub(crate) use shard_files::{ShardFile, discover};
pub use show::{ContactSheet, ShowOptions, Shown, Thumbnail, Thumbnails, matrix, show};
pub use stats::{SeveralLabels, Stats, stats};
pub use verify::{Report, verify};
