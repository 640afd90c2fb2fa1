//! Reads existing data sets: describes, checks, measures and shows them, and makes missing indexes.

mod bad;
mod check;
mod extract;
mod index;
mod info;
mod labels;
mod manifest;
mod measure;
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
pub use index::{Indexed, index};
pub use info::{FirstImage, Info, SplitInfo, info};
pub use show::{ContactSheet, ShowOptions, Shown, show};
pub use stats::{Stats, stats};
pub use verify::{Report, verify};
